package middleware_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/middleware"
)

// A consumer of a queue limits each sender.
func Example() {
	type message struct {
		sender string
		bytes  int64
	}
	perSender, err := limiter.New(memory.New(), "sender", limiter.PerHour(1000))
	if err != nil {
		log.Fatal(err)
	}
	rules, err := middleware.New(middleware.Rule[message]{
		Limiter: perSender,
		Key:     func(m message) (string, error) { return m.sender, nil },
		Cost:    func(m message) int64 { return m.bytes },
	}, false)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range []message{{"ann", 700}, {"ann", 700}, {"", 1}} {
		var d middleware.Decision
		if err := rules.Decide(context.Background(), m, &d); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(d.Result.Allowed, d.Result.Remaining, d.Violated())
	}
	// Output:
	// true 300 []
	// false 300 [sender]
	// limiter: the request has no key: the key function returned an empty key; return one, or leave such requests out with Skip
}

package limiter_test

import (
	"context"
	"expvar"
	"fmt"
	"log"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func ExampleWithObserver() {
	var operations expvar.Map // in your program: a counter of your metrics library
	observe := func(_ context.Context, d limiter.Decision) {
		outcome := "refused"
		switch {
		case d.Err != nil:
			outcome = "failed" // for the log: d.Err says why the store did not do it
		case d.Result.Allowed:
			outcome = "allowed"
		}
		operations.Add(d.Limiter+" "+d.Op.String()+" "+outcome+" "+d.Result.Source.String(), 1)
	}
	logins, err := limiter.New(memory.New(), "login", limiter.PerMinute(2), limiter.WithObserver(observe))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if _, err := logins.Allow(context.Background(), "alice@example.com"); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(operations.String())
	// Output: {"login take allowed store": 2, "login take refused store": 1}
}

package memory_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func ExampleNew() {
	logins, err := limiter.New(memory.New(), "login", limiter.PerMinute(2))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		res, err := logins.Allow(context.Background(), "ann@example.com")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed, res.Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}

// A test sets the time, and waits for nothing.
func ExampleWithClock() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	store := memory.New(memory.WithClock(func() time.Time { return now }))
	mails, err := limiter.New(store, "mail", limiter.PerHour(1))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		res, err := mails.Allow(context.Background(), "ann@example.com")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed, res.RetryAfter)
		now = now.Add(45 * time.Minute)
	}
	// Output:
	// true 0s
	// false 15m0s
	// true 0s
}

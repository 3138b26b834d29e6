package borrow_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/borrow"
	"github.com/sqlimit/limiter/memory"
)

func Example() {
	ctx := context.Background()
	store := memory.New() // in your program: what postgres.Open returned
	fast, err := borrow.New(store, 1000, 200*time.Millisecond)
	if err != nil {
		log.Fatal(err)
	}
	requests, err := limiter.New(fast, "tenant", limiter.PerSecond(50_000))
	if err != nil {
		log.Fatal(err)
	}
	for range 10_000 { // in your program: in each request
		if res, err := requests.Allow(ctx, "acme"); err != nil || !res.Allowed {
			fmt.Println("refused", res.RetryAfter, err)
		}
	}
	fmt.Println("fewer than 100 statements:", fast.Stats().Borrows < 100)

	// When the server has stopped, and before store.Close:
	if err := fast.Shutdown(ctx); err != nil {
		log.Print(err)
	}
	// Output:
	// fewer than 100 statements: true
}

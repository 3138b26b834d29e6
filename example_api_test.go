package limiter_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"log"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// A job that was charged but did not run gets its units back.
func ExampleLimiter_RefundOf() {
	jobs, err := limiter.New(memory.New(), "jobs", limiter.FixedWindow{Limit: 5, Window: 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	res, err := jobs.AllowN(ctx, "tenant-7", 4)
	if err != nil {
		log.Fatal(err)
	}
	gave, err := jobs.RefundOf(ctx, "tenant-7", 4, res)
	if err != nil {
		log.Fatal(err)
	}
	left, err := jobs.Peek(ctx, "tenant-7")
	fmt.Println(res.Remaining, gave, left.Remaining, err)
	// Output: 1 true 5 <nil>
}

// After the first refusal the flood is refused from memory.
func ExampleWithDenyCache() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	logins, err := limiter.New(memory.New(), "login", limiter.PerMinute(1),
		limiter.WithDenyCache(10_000, 0), // 10,000 keys for up to limiter.DefaultDenyAge
		limiter.WithClock(func() time.Time { return now }))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		res, err := logins.Allow(context.Background(), "192.0.2.1")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed, res.Source, res.RetryAfter)
	}
	// Output:
	// true store 0s
	// false store 1m0s
	// false deny_cache 1m0s
}

// downStore fails every operation.
type downStore struct{}

func (downStore) Do(context.Context, limiter.Op) (limiter.State, error) {
	return limiter.State{}, fmt.Errorf("broken: %w", limiter.ErrNotApplied)
}

// With FailOpen a request passes if the store fails, but not if the input is wrong.
func ExampleFailOpen() {
	api, err := limiter.New(downStore{}, "api", limiter.PerSecond(10), limiter.FailOpen())
	if err != nil {
		log.Fatal(err)
	}
	res, err := api.Allow(context.Background(), "customer-7")
	fmt.Println(res.Allowed, res.Source, err)
	_, err = api.Allow(context.Background(), "") // no key
	fmt.Println(errors.Is(err, limiter.ErrInvalid), limiter.StoreFailed(err))
	// Output:
	// true policy <nil>
	// true false
}

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

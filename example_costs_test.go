package limiter_test

import (
	"context"
	"fmt"
	"log"
	"net/url"
	"strings"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// ask charges a customer for what a model used, and returns the Result of the estimate. If Allowed is true, the model
// has run, also with an error.
func ask(ctx context.Context, tokens *limiter.Limiter, customer string, model func() (used int64)) (limiter.Result, error) {
	const low = 500 // what a request costs at least: its prompt
	res, err := tokens.AllowN(ctx, customer, low)
	if err != nil || !res.Allowed {
		return res, err
	}
	if used := model(); used > low {
		_, err = tokens.Charge(context.WithoutCancel(ctx), customer, used-low) // also if the client has left
	}
	return res, err
}

func Example_tokens() {
	tokens, err := limiter.New(memory.New(), "tokens", limiter.PerDay(10_000))
	if err != nil {
		log.Fatal(err)
	}
	for _, used := range []int64{4000, 8000, 100} {
		res, err := ask(context.Background(), tokens, "customer-7", func() int64 { return used })
		fmt.Println(res.Allowed, res.Remaining, "left; wait for", res.RetryAfter.Round(time.Minute), err)
	}
	// Output:
	// true 9500 left; wait for 0s <nil>
	// true 5500 left; wait for 0s <nil>
	// false 0 left; wait for 6h0m0s <nil>
}

func Example_upTo() {
	ctx := context.Background()
	mails, err := limiter.New(memory.New(), "mail", limiter.PerDay(100))
	if err != nil {
		log.Fatal(err)
	}
	for _, addresses := range [][]string{make([]string, 60), make([]string, 60), make([]string, 20)} {
		res, err := mails.AllowUpTo(ctx, "provider", int64(len(addresses)))
		if err != nil {
			log.Fatal(err)
		}
		if res.Taken == 0 {
			fmt.Println("the next run is in", res.RetryAfter.Round(time.Minute))
			continue
		}
		now, later := addresses[:res.Taken], addresses[res.Taken:] // send now; leave the rest to the next run
		fmt.Println("send", len(now), "leave", len(later))
	}
	// Output:
	// send 60 leave 0
	// send 40 leave 20
	// the next run is in 14m0s
}

// allowSearch decides a request. The third refusal within 20 minutes blocks the address for a day.
func allowSearch(ctx context.Context, searches, refusals *limiter.Limiter, address string) (limiter.Result, error) {
	res, err := searches.Allow(ctx, address)
	if err != nil || res.Allowed {
		return res, err
	}
	if counted, err := refusals.Allow(ctx, address); err == nil && counted.Allowed && counted.Remaining == 0 {
		_ = searches.Block(ctx, address, 24*time.Hour) // in your program: log the error
	}
	return res, nil
}

func Example_block() {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	store := memory.New(memory.WithClock(func() time.Time { return noon })) // only for the exact output below
	searches, err := limiter.New(store, "search", limiter.PerMinute(2))
	if err != nil {
		log.Fatal(err)
	}
	refusals, err := limiter.New(store, "search-refused", limiter.PerHour(3))
	if err != nil {
		log.Fatal(err)
	}
	for range 6 {
		res, err := allowSearch(context.Background(), searches, refusals, "192.0.2.1")
		fmt.Println(res.Allowed, res.RetryAfter, err)
	}
	// Output:
	// true 0s <nil>
	// true 0s <nil>
	// false 30s <nil>
	// false 30s <nil>
	// false 30s <nil>
	// false 24h0m30s <nil>
}

func Example_webhooks() {
	hooks, err := limiter.New(memory.New(), "webhook", limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	for _, target := range []string{"https://a.example/new", "https://A.example:443/paid", "https://b.example/", "https://a.example/"} {
		u, err := url.Parse(target)
		if err != nil {
			log.Fatal(err)
		}
		r, err := hooks.Reserve(context.Background(), strings.ToLower(u.Hostname()), 1, 90*time.Second)
		switch {
		case err != nil:
			log.Fatal(err)
		case !r.Allowed:
			fmt.Println(target, "book again in", r.RetryAfter.Round(time.Second))
		default:
			fmt.Println(target, "send in", r.Delay.Round(time.Second))
		}
	}
	// Output:
	// https://a.example/new send in 0s
	// https://A.example:443/paid send in 1m0s
	// https://b.example/ send in 0s
	// https://a.example/ book again in 30s
}

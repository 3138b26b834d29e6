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

func Example_tokens() {
	tokens, err := limiter.New(memory.New(), "tokens", limiter.PerDay(10_000))
	if err != nil {
		log.Fatal(err)
	}
	const low = 500 // what a request costs at least: its prompt
	ask := func(ctx context.Context, customer string, model func() (used int64)) {
		res, err := tokens.AllowN(ctx, customer, low)
		if err != nil || !res.Allowed {
			fmt.Println("refused for", res.RetryAfter.Round(time.Minute), err)
			return
		}
		used := model()
		if used > low {
			res, err = tokens.Charge(context.WithoutCancel(ctx), customer, used-low) // also if the client has left
		}
		fmt.Println(used, "tokens;", res.Remaining, "left;", err)
	}
	for _, used := range []int64{4000, 8000, 100} {
		ask(context.Background(), "customer-7", func() int64 { return used })
	}
	// Output:
	// 4000 tokens; 6000 left; <nil>
	// 8000 tokens; 0 left; <nil>
	// refused for 6h0m0s <nil>
}

func Example_streaming() {
	tokens, err := limiter.New(memory.New(), "tokens", limiter.PerDay(1000))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	sent := int64(0)
	for range 20 { // in your program: after every 100 tokens of the stream
		res, err := tokens.Charge(ctx, "customer-7", 100)
		if err != nil || !res.Allowed {
			break // end the stream
		}
		sent += 100
	}
	fmt.Println("sent", sent)
	// Output: sent 1000
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

// The third refusal within an hour blocks the address for a day.
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
	ctx := context.Background()
	for range 7 {
		res, err := searches.Allow(ctx, "192.0.2.1")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed, res.RetryAfter)
		if res.Allowed {
			continue
		}
		if counted, err := refusals.Allow(ctx, "192.0.2.1"); err == nil && counted.Allowed && counted.Remaining == 0 {
			_ = searches.Block(ctx, "192.0.2.1", 24*time.Hour) // in your program: log the error
		}
	}
	// Output:
	// true 0s
	// true 0s
	// false 30s
	// false 30s
	// false 30s
	// false 24h0m30s
	// false 24h0m30s
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

package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

// A clock that stands still makes the results of a test exact.
func Example() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	logins, err := limiter.New(memory.New(), "login",
		limiter.TokenBucket{Capacity: 2, Refill: 1, Interval: time.Minute},
		limiter.WithClock(func() time.Time { return now }))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for range 3 {
		res, err := logins.Allow(ctx, "alice@example.com")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed, res.Remaining, res.RetryAfter)
	}
	now = now.Add(time.Minute)
	res, err := logins.Allow(ctx, "alice@example.com")
	fmt.Println(res.Allowed, err)
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 1m0s
	// true <nil>
}

// A daily quota that also counts what it refuses.
func ExampleFixedWindow() {
	quota, err := limiter.New(memory.New(), "reports", limiter.FixedWindow{
		Limit: 2, Window: 24 * time.Hour, CountRejected: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		res, err := quota.Allow(context.Background(), "tenant-7")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed, res.Used, "of", res.Limit)
	}
	// Output:
	// true 1 of 2
	// true 2 of 2
	// false 3 of 2
}

// While the database is down each process limits by itself.
func ExampleFailLocal() {
	// Nothing listens there.
	store, err := postgres.Open("postgres://app@127.0.0.1:1/app?sslmode=disable")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	logins, err := limiter.New(store, "login", limiter.PerMinute(2),
		limiter.FailLocal(memory.New()),
		limiter.WithObserver(func(_ context.Context, d limiter.Decision) {
			if d.Err != nil { // for the log: why the database was not asked, or did not answer
				fmt.Println(errors.Is(d.Err, limiter.ErrNotApplied))
			}
		}))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		res, err := logins.Allow(context.Background(), "alice@example.com")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed, res.Source)
	}
	// Output:
	// true
	// true local
	// true
	// true local
	// true
	// false local
}

func Example_postgres() {
	ctx := context.Background()
	store, err := postgres.Open(os.Getenv("DATABASE_URL")) // or postgres.New(pool)
	if err != nil {
		log.Fatal(err)
	}
	logins, err := limiter.New(store, "login", limiter.PerMinute(5)) // 5 at once, then 1 every 12 s
	if err != nil {
		log.Fatal(err)
	}
	res, err := logins.Allow(ctx, "alice@example.com") // any string is a key
	fmt.Println(res.Allowed, res.Remaining, res.RetryAfter, err)
}

func Example_sqlite() {
	ctx := context.Background()
	store, err := sqlite.Open("app.db")
	if err != nil {
		log.Fatal(err)
	}
	err = migrations.Up(ctx, migrations.SQLite, store.DB())
	if err != nil {
		log.Fatal(err)
	}
	_, err = limiter.New(store, "login", limiter.PerMinute(5))
	fmt.Println(err)
}

// What a handler does with a Result, until it is done by a middleware.
func Example_http() {
	api, err := limiter.New(memory.New(), "api", limiter.PerMinute(60))
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		res, err := api.Allow(r.Context(), r.Header.Get("X-Customer"))
		switch {
		case err != nil: // no decision was made
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		case !res.Allowed:
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(res.RetryAfter.Seconds()))))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		default:
			_, _ = fmt.Fprintln(w, "hello")
		}
	})
}

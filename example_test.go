package limiter_test

import (
	"context"
	"errors"
	"expvar"
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

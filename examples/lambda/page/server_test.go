package page_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/examples/lambda/page"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

// service has the routes and the policies of the example. Its clock stands still until a test
// moves it.
type service struct {
	*httptest.Server
	down  atomic.Bool  // the store fails
	mute  atomic.Bool  // connections break instead of being answered
	looks atomic.Int64 // responses of /limits

	failures atomic.Int64 // decisions that the store failed

	mu  sync.Mutex
	now time.Time
}

func serve(t *testing.T) *service {
	t.Helper()
	s := &service{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	store := failing{memory.New(), s}
	limit := func(name string, policy limiter.Policy) *limiter.Limiter {
		l, err := limiter.New(store, name, policy, limiter.WithClock(s.clock), limiter.WithTimeout(testTimeout))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	var (
		pages   = limit("page", limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Second})
		search  = limit("search", limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Second})
		burst   = limit("export-burst", limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: 2 * time.Second})
		day     = limit("export-day", limiter.FixedWindow{Limit: 20, Window: 24 * time.Hour})
		address = limit("login-address", limiter.PerMinute(20))
		account = limit("login-account", limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: time.Minute})
	)
	ip := handler.ClientIP()
	user := handler.User(func(r *http.Request) string { return r.PostFormValue("user") })
	var look []handler.Rule
	for _, l := range []*limiter.Limiter{search, burst, day, address, pages} {
		look = append(look, handler.Rule{Limiter: l, Key: ip, Cost: func(*http.Request) int64 { return 0 }})
	}
	limits := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.looks.Add(1)
		w.WriteHeader(http.StatusNoContent)
	})
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("password") != "open sesame" {
			http.Error(w, "wrong password", http.StatusUnauthorized)
			return
		}
		handler.Succeeded(r.Context())
	})
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page.Explain(handler.New(pages, ip)(page.Handler())))
	mux.Handle("GET /limits", handler.NewAll(look)(limits))
	mux.Handle("GET /search", handler.New(search, ip)(ok))
	mux.Handle("POST /export", handler.NewAll([]handler.Rule{{Limiter: burst, Key: ip}, {Limiter: day, Key: ip}})(ok))
	mux.Handle("POST /login", handler.NewAll([]handler.Rule{{Limiter: address, Key: ip}, {Limiter: account, Key: user}},
		handler.ChargeFailures(), handler.HideQuota())(login))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.mute.Load() {
			panic(http.ErrAbortHandler)
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *service) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// pass moves the clock.
func (s *service) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// failing is a store that can be down.
type failing struct {
	limiter.AllStore
	service *service
}

func (f failing) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if err := f.fail(); err != nil {
		return limiter.State{}, err
	}
	return f.AllStore.Do(ctx, op)
}

func (f failing) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	return f.AllStore.DoAll(ctx, ops)
}

// fail returns an error if the store is down.
func (f failing) fail() error {
	if !f.service.down.Load() {
		return nil
	}
	f.service.failures.Add(1)
	return fmt.Errorf("the store is down: %w", limiter.ErrNotApplied)
}

package handler_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

func search(http.ResponseWriter, *http.Request) {}

func mustLimiter(name string, p limiter.Policy) *limiter.Limiter {
	l, err := limiter.New(memory.New(), name, p)
	if err != nil {
		panic(err)
	}
	return l
}

func ExampleNew() {
	searches := mustLimiter("search", limiter.TokenBucket{Capacity: 2, Refill: 1, Interval: time.Minute})
	limit := handler.New(searches, handler.ClientIP()) // behind a proxy, with an option
	mux := http.NewServeMux()
	mux.Handle("GET /search", limit(http.HandlerFunc(search)))

	for range 3 {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/search", http.NoBody))
		fmt.Println(w.Code, w.Header()["Ratelimit-Policy"], w.Header()["Ratelimit"], w.Header()["Retry-After"])
	}
	// Output:
	// 200 ["search";q=2;w=120] ["search";r=1;t=60] []
	// 200 ["search";q=2;w=120] ["search";r=0;t=60] []
	// 429 ["search";q=2;w=120] ["search";r=0;t=60] [60]
}

// A client may export twice at once, and ten pages a day. The second request has too many pages for
// the day, so it is not charged to the burst either.
func ExampleNewAll() {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	store := memory.New(memory.WithClock(func() time.Time { return now })) // in your program: postgres.Open
	burst, err := limiter.New(store, "burst", limiter.TokenBucket{Capacity: 2, Refill: 1, Interval: 2 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	day, err := limiter.New(store, "day", limiter.FixedWindow{Limit: 10, Window: 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	pages := func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.URL.Query().Get("pages"), 10, 64)
		return max(n, 1)
	}
	limit := handler.NewAll([]handler.Rule{
		{Limiter: burst, Key: handler.ClientIP()},
		{Limiter: day, Key: handler.ClientIP(), Cost: pages},
	})
	mux := http.NewServeMux()
	mux.Handle("POST /export", limit(http.HandlerFunc(search)))

	for _, target := range []string{"/export?pages=6", "/export?pages=6", "/export?pages=4", "/export"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, target, http.NoBody))
		fmt.Println(w.Code, w.Header()["Ratelimit"], w.Header()["Retry-After"])
	}
	// Output:
	// 200 ["burst";r=1;t=2, "day";r=4;t=43200] []
	// 429 ["burst";r=1;t=2, "day";r=4;t=43200] [43200]
	// 200 ["burst";r=0;t=2, "day";r=0;t=43200] []
	// 429 ["burst";r=0;t=2, "day";r=0;t=43200] [43200]
}

// A server tells its platform whether the store works.
func Example_server() {
	store := memory.New() // in your program: postgres.Open
	searches, err := limiter.New(store, "search", limiter.PerMinute(60))
	if err != nil {
		log.Fatal(err)
	}
	var failures atomic.Int64
	limit := handler.New(searches, handler.ClientIP(), handler.OnError(func(_ *http.Request, err error) {
		if errors.Is(err, handler.ErrNoKey) {
			return // the client's fault, or a wrong proxy option
		}
		failures.Add(1) // your metric
	}))
	mux := http.NewServeMux()
	mux.Handle("GET /search", limit(http.HandlerFunc(search)))
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := store.Check(ctx); err != nil {
			http.Error(w, "the database is not ready", http.StatusServiceUnavailable)
		}
	})

	for _, path := range []string{"/search", "/health"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		fmt.Println(path, w.Code, w.Header()["Ratelimit"])
	}
	// Output:
	// /search 200 ["search";r=59;t=1]
	// /health 200 []
}

// Unlike the default, OnError gets every failure. Clients can send any number of requests without a key.
func ExampleOnError() {
	limit := handler.New(mustLimiter("search", limiter.PerMinute(60)), handler.ClientIP(),
		handler.OnError(func(r *http.Request, err error) {
			if !errors.Is(err, handler.ErrNoKey) {
				slog.ErrorContext(r.Context(), "no rate limit decision", "error", err)
			}
		}))
	http.Handle("GET /logged", limit(http.HandlerFunc(search)))
}

// A login is limited by address, which stops one machine that tries many accounts,
// and by account, which stops many machines that try one. Only failures count, and
// nobody is told what is left of somebody else's account.
func ExampleChargeFailures() {
	account := func(r *http.Request) (string, error) {
		return strings.ToLower(strings.TrimSpace(r.PostFormValue("user"))), nil
	}
	byAddress := handler.New(mustLimiter("login-address", limiter.PerMinute(20)), handler.ClientIP(), handler.ChargeFailures())
	byAccount := handler.New(mustLimiter("login-account", limiter.PerHour(10)), account, handler.ChargeFailures(), handler.HideQuota())
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("password") != "open sesame" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.Succeeded(r.Context())
	})
	http.Handle("POST /login", byAddress(byAccount(login)))
}

// A user who is logged in may do more than an address, each on each route.
func ExampleJoin() {
	user := func(r *http.Request) string {
		name, _, _ := r.BasicAuth() // which must have been verified by now
		return name
	}
	limit := handler.New(mustLimiter("api", limiter.PerMinute(600)), handler.Join(handler.Route(), handler.User(user)))
	http.Handle("GET /items/{id}", limit(http.HandlerFunc(search)))
}

func ExampleResultFromContext() {
	limit := handler.New(mustLimiter("preview", limiter.PerHour(5)), handler.ClientIP())
	h := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if res, ok := handler.ResultFromContext(r.Context()); ok {
			fmt.Println(res.Remaining, "previews left")
		}
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	// Output: 4 previews left
}

// ReverseProxy adds the headers of the upstream to those of the limiter. So the proxy removes the
// upstream's X-RateLimit headers, which cannot be lists.
func ExampleLegacyHeaders_reverseProxy() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Remaining", "999")
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		log.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			for name := range r.Header {
				if strings.HasPrefix(name, "X-Ratelimit-") { // as Go spells it
					r.Header.Del(name)
				}
			}
			return nil
		},
	}
	limit := handler.New(mustLimiter("api", limiter.PerMinute(5)), handler.ClientIP(), handler.LegacyHeaders())
	w := httptest.NewRecorder()
	limit(proxy).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	fmt.Println(w.Header().Values("X-RateLimit-Remaining"))
	// Output: [4]
}

// A new policy is tried on real traffic before it refuses anybody.
func ExampleDryRun() {
	limit := handler.New(mustLimiter("search", limiter.PerSecond(1)), handler.ClientIP(), handler.DryRun(),
		handler.OnRefusal(func(r *http.Request, res limiter.Result) {
			slog.InfoContext(r.Context(), "would be refused", "route", r.Pattern, "wait", res.RetryAfter)
		}))
	http.Handle("GET /dry", limit(http.HandlerFunc(search)))
}

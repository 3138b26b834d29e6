package handler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
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

// Without options, it is the other end of the connection that counts.
func ExampleClientIP() {
	key := handler.ClientIP()
	fmt.Println(key(&http.Request{RemoteAddr: "203.0.113.7:49152"}))
	fmt.Println(key(&http.Request{RemoteAddr: "[2001:db8:1:2::7]:49152"}))
	fmt.Println(key(&http.Request{RemoteAddr: "[::ffff:203.0.113.7]:49152"}))
	// Output:
	// 203.0.113.7 <nil>
	// 2001:db8:1:2::/64 <nil>
	// 203.0.113.7 <nil>
}

// The header counts only if a proxy sent it.
func ExampleTrustedProxies() {
	key := handler.ClientIP(handler.TrustedProxies(netip.MustParsePrefix("10.0.0.0/28")))
	h := http.Header{"X-Forwarded-For": {"1.1.1.1, 203.0.113.7, 10.0.0.2"}}
	fmt.Println(key(&http.Request{RemoteAddr: "10.0.0.1:443", Header: h}))
	fmt.Println(key(&http.Request{RemoteAddr: "198.51.100.9:443", Header: h}))
	// Output:
	// 203.0.113.7 <nil>
	// 198.51.100.9 <nil>
}

// A request that came around the proxy lacks the header, and is refused.
func ExampleAddressHeader() {
	key := handler.ClientIP(handler.AddressHeader("CF-Connecting-IP"))
	r := &http.Request{RemoteAddr: "198.51.100.9:443", Header: http.Header{}}
	_, err := key(r)
	fmt.Println(err)
	r.Header.Set("CF-Connecting-IP", "203.0.113.7")
	fmt.Println(key(r))
	// Output:
	// limiter: the request has no key: the request does not have one line CF-Connecting-IP with one address; the proxy must set it on every request, and no request may bypass the proxy
	// 203.0.113.7 <nil>
}

// Behind one proxy, only the last address of the header counts: the proxy wrote it.
func ExampleTrustedHops() {
	searches := mustLimiter("search", limiter.PerMinute(2)) // in your program: limiter.New
	limit := handler.New(searches, handler.ClientIP(handler.TrustedHops(1)))
	mux := http.NewServeMux()
	mux.Handle("GET /search", limit(http.HandlerFunc(search)))

	for _, forwarded := range []string{"192.0.2.1", "1.1.1.1, 192.0.2.1", "2.2.2.2, 192.0.2.1", "192.0.2.9"} {
		r := httptest.NewRequest(http.MethodGet, "/search", http.NoBody)
		r.Header.Set("X-Forwarded-For", forwarded)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(forwarded, w.Code)
	}
	// Output:
	// 192.0.2.1 200
	// 1.1.1.1, 192.0.2.1 200
	// 2.2.2.2, 192.0.2.1 429
	// 192.0.2.9 200
}

// credentials is the body of a login.
type credentials struct{ User, Password string }

type credentialsKey struct{}

// decodeLogin decodes the body for the limiter and for the login.
func decodeLogin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c credentials
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&c); err != nil {
			http.Error(w, "send user and password as JSON", http.StatusBadRequest)
			return
		}
		c.User = strings.ToLower(strings.TrimSpace(c.User))
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), credentialsKey{}, c)))
	})
}

// account returns the account, or "" if the body names none.
func account(r *http.Request) string {
	c, _ := r.Context().Value(credentialsKey{}).(credentials)
	return c.User
}

func logIn(w http.ResponseWriter, r *http.Request) {
	c, _ := r.Context().Value(credentialsKey{}).(credentials)
	if c.Password != "open sesame" { // in your program: compare password hashes
		http.Error(w, "wrong user or password", http.StatusUnauthorized)
		return
	}
	handler.Succeeded(r.Context()) // gives both costs back when logIn returns
}

// A login is limited by address, which stops one machine that tries many accounts, and by account, which
// stops many machines that try one. Only failures count. The quota of an account is hidden, because its
// callers may be strangers.
func ExampleChargeFailures_login() {
	byAddress := handler.New(mustLimiter("login-address", limiter.PerMinute(20)),
		handler.ClientIP(), handler.ChargeFailures())
	byAccount := handler.New(mustLimiter("login-account", limiter.PerMinute(2)),
		handler.User(account), handler.ChargeFailures(), handler.HideQuota())
	h := byAddress(decodeLogin(byAccount(http.HandlerFunc(logIn))))

	for _, body := range []string{
		`{"user": "alice@x", "password": "open sesame"}`,
		`{"user": "alice@x", "password": "guess 1"}`,
		`{"user": "Alice@x", "password": "guess 2"}`,
		`{"user": "alice@x", "password": "open sesame"}`,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(body)))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 401
	// 401
	// 429
}

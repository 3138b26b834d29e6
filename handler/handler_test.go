package handler_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

var perMinute = limiter.PerMinute(60)

func TestNoDecisionIsNeverAPass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		l      handler.Limiter
		key    handler.KeyFunc
		status int
		retry  string
		kind   any // the problem's type
		open   bool
	}{
		{"the store failed", fails(limiter.ErrNotApplied), oneKey, 503, "1", reduced, true},
		{"the outcome is unknown", fails(limiter.ErrOutcomeUnknown), oneKey, 503, "1", reduced, true},
		{"the key is busy", fails(fmt.Errorf("%w: %w", limiter.ErrKeyBusy, limiter.ErrNotApplied)), oneKey, 503, "1", reduced, false},
		{"the store is set up wrongly", fails(limiter.ErrMisconfigured), oneKey, 503, "1", reduced, false},
		{"no policy was chosen", fails(fmt.Errorf("%w: %w", limiter.ErrNoPolicy, limiter.ErrNotApplied)), oneKey, 503, "1", reduced, false},
		{"the caller has gone", fails(fmt.Errorf("%w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown)), oneKey, 503, "1", reduced, false},
		{"an error of no class", fails(errors.New("broken")), oneKey, 503, "1", reduced, false},
		{"a cost that can never pass", fails(limiter.ErrExceedsCapacity), oneKey, 400, "", nil, false},
		{"a negative cost", fails(limiter.ErrInvalid), oneKey, 500, "", nil, false},
		{"a key function that met a store that failed", fails(nil), func(*http.Request) (string, error) { return "", limiter.ErrNotApplied }, 400, "", nil, false},
		{"no key", fails(nil), func(*http.Request) (string, error) { return "", nil }, 400, "", nil, false},
		{"an error of the key function", fails(nil), func(*http.Request) (string, error) { return "k", errors.New("broken") }, 400, "", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var reported []error
			report := handler.OnError(func(_ *http.Request, err error) { reported = append(reported, err) })
			next := &nextHandler{}
			resp := ask(handler.New(c.l, c.key, report)(next))
			problem := wantStatus(t, resp, c.status)
			wantHeaders(t, resp.header, map[string]string{"Retry-After": c.retry, "RateLimit": "", "RateLimit-Policy": ""})
			testenv.Equal(t, problem["type"], c.kind, "the type")
			if c.name == "an error of the key function" && !errors.Is(reported[0], handler.ErrNoKey) {
				t.Errorf("OnError got %v, want ErrNoKey", reported)
			}
			want := 1
			if c.name == "the caller has gone" { // which is no error
				want = 0
			}
			testenv.Equal(t, []int{next.calls, len(reported)}, []int{0, want}, "calls of the handler and errors")
			status := c.status
			if c.open {
				status = http.StatusTeapot
			}
			wantStatus(t, ask(handler.New(c.l, c.key, report, handler.FailOpen())(next)), status)
			testenv.Equal(t, len(reported), 2*want, "errors that OnError got, also with FailOpen")
		})
	}
}

const reduced = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

func TestResultFromContext(t *testing.T) {
	t.Parallel()
	c := newClock()
	outer := handler.New(newLimiter(t, c, "outer", limiter.PerMinute(100)), oneKey)
	inner := handler.New(newLimiter(t, c, "inner", limiter.PerMinute(60)), oneKey)
	var left []int64
	look := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		res, ok := handler.ResultFromContext(r.Context())
		if !ok || !res.Allowed || res.Source != limiter.SourceStore {
			t.Errorf("the decision in the context is %+v, %v", res, ok)
		}
		left = append(left, res.Remaining)
		testenv.Equal(t, r.Context().Value(http.ServerContextKey), "kept", "what the context held")
	})
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, "kept"))
	askBy(outer(look), r)
	askBy(outer(inner(look)), r)
	testenv.Equal(t, left, []int64{99, 59}, "left: the second is the innermost limiter's")
	if res, ok := handler.ResultFromContext(t.Context()); ok || res != (limiter.Result{}) {
		t.Errorf("a context without a decision has %+v", res)
	}
}

func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	var passed atomic.Int64
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed.Add(1) })
	h := handler.NewAll(burstAndDay(t, memory.New(), newClock(), 2), handler.LegacyHeaders())(next)
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() { ask(h) })
	}
	wait.Wait()
	testenv.Equal(t, passed.Load(), 2, "requests of 20 that passed")
}

// bare is a ResponseWriter with a header of its own for each request, as the server makes it.
type bare struct{ header http.Header }

func (b *bare) Header() http.Header          { return b.header }
func (*bare) Write(body []byte) (int, error) { return len(body), nil }
func (*bare) WriteHeader(int)                {}

// The allocations are the key, the decision, the request's copy, two header lines, the text of one, and the
// header's first group of fields.
func TestRequestCostsSixAllocations(t *testing.T) {
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	l, err := limiter.New(memory.New(), "search", limiter.TokenBucket{Capacity: 1 << 36, Refill: 1, Interval: time.Millisecond})
	must(t, err)
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	allocs := func(h http.Handler) float64 {
		return testing.AllocsPerRun(1000, func() { h.ServeHTTP(&bare{make(http.Header)}, r) })
	}
	if got := allocs(handler.New(l, handler.ClientIP())(next)) - allocs(next); got > 6 {
		t.Errorf("%v allocations a request, want at most 6", got)
	}
}

func files(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	return len(entries)
}

func TestUploadsAreRemoved(t *testing.T) {
	refused := limiter.Result{Limit: 10, RetryAfter: 1, Source: limiter.SourceStore}
	allowed := limiter.Result{Allowed: true, Limit: 10, Source: limiter.SourceStore}
	written := 0
	parse := func(r *http.Request) {
		if err := r.ParseMultipartForm(0); err != nil { // 0: every file goes to TMPDIR
			t.Error(err)
		}
		written = files(t, os.TempDir())
	}
	for _, c := range []struct {
		name   string
		l      *fixedLimiter
		opts   []handler.Option
		panics bool
	}{
		{name: "a request that passes", l: &fixedLimiter{result: allowed}},
		{name: "a handler that panics", l: &fixedLimiter{result: allowed}, panics: true},
		{name: "a refusal in a dry run", l: &fixedLimiter{result: refused}, opts: []handler.Option{handler.DryRun()}},
		{name: "no decision in a dry run", l: fails(limiter.ErrMisconfigured), opts: []handler.Option{handler.DryRun()}},
		{name: "a store that failed", l: fails(limiter.ErrNotApplied), opts: []handler.Option{handler.FailOpen()}},
		{name: "a skipped request", l: fails(nil), opts: []handler.Option{handler.Skip(func(*http.Request) bool { return true })}},
		{name: "a refusal of the application's own", l: &fixedLimiter{result: refused}, opts: []handler.Option{
			handler.Refusal(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parse(r) })),
		}},
		{name: "a hook that reads the form", l: &fixedLimiter{result: refused}, opts: []handler.Option{
			handler.OnRefusal(func(r *http.Request, _ limiter.Result) { parse(r) }),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			written = 0
			mux := http.NewServeMux()
			mux.HandleFunc("POST /upload", func(_ http.ResponseWriter, r *http.Request) {
				parse(r)
				if c.panics {
					panic("a bug")
				}
			})
			limit := handler.New(c.l, oneKey, c.opts...)
			limited := limit(limit(mux))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if c.panics && recover() == nil {
						t.Error("the panic is gone")
					}
				}()
				limited.ServeHTTP(w, r)
			}))
			const body = "--b\r\nContent-Disposition: form-data; name=file; filename=photo.jpg\r\n\r\nx\r\n--b--\r\n"
			resp, err := server.Client().Post(server.URL+"/upload", "multipart/form-data; boundary=b", strings.NewReader(body))
			must(t, err)
			_ = resp.Body.Close()
			server.Close() // waits until the server has removed what it removes
			testenv.Equal(t, []int{written, files(t, dir)}, []int{1, 0}, "files in TMPDIR, during the request and after it")
		})
	}
}

const secret = "alice-9f31c2-and-more@example.com"

// keyed is a request that has the secret wherever a client can write one.
func keyed() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/"+secret, http.NoBody)
	r.Header["X-Api-Key"] = []string{secret, secret}
	r.SetBasicAuth(secret, secret)
	return r
}

func TestMistakes(t *testing.T) {
	nobody := handler.User(func(*http.Request) string { return "" })
	for _, c := range []struct {
		name   string
		key    handler.KeyFunc
		cost   int64
		detail string
		fix    string // in the log
	}{
		{"TrustedHops without a proxy", handler.ClientIP(handler.TrustedHops(1)), 1, "The client's address is unknown.", "without a proxy, leave TrustedHops out"},
		{"a route outside of a mux", handler.Route(), 1, "The request matched no route.", "put the limiter around the handler of the route"},
		{"no user", nobody, 1, "The request has no authenticated user.", "put the limiter behind authentication"},
		{"no header", handler.Header("X-Tenant"), 1, "A required header field is missing, empty or repeated.", "the header X-Tenant has 0 lines; clients must send one"},
		{"a header twice", handler.Header("X-Api-Key"), 1, "A required header field is missing, empty or repeated.", "the header X-Api-Key has 2 lines; clients must send one"},
		{"a cost above the capacity", oneKey, 100, "The request costs more than its rate limit ever admits.", "the cost is 100; the policy admits at most 60; raise the limit, or let Cost return less"},
		{"an empty key", func(*http.Request) (string, error) { return "", nil }, 1, "The request has no key for its rate limit.", "the key function returned an empty key; return one"},
		{"an empty part of a key", handler.Join(oneKey, func(*http.Request) (string, error) { return "", nil }), 1, "The request has no key for its rate limit.", "every function must return a key"},
		{"an error of the application", func(r *http.Request) (string, error) {
			return "", errors.New("cannot parse " + r.URL.Path)
		}, 1, "The request has no key for its rate limit.", "set OnError to see it"},
		{"an ErrNoKey of the application", func(r *http.Request) (string, error) {
			return "", fmt.Errorf("%w: cannot parse %s", handler.ErrNoKey, r.URL.Path)
		}, 1, "The request has no key for its rate limit.", "set OnError to see it"},
		{"an error that the application wraps", func(r *http.Request) (string, error) {
			_, err := nobody(r)
			return "", fmt.Errorf("%s: %w", r.URL.Path, err)
		}, 1, "The request has no authenticated user.", "put the limiter behind authentication"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := testenv.Logged(t)
			cost := handler.Cost(func(*http.Request) int64 { return c.cost })
			limit := func(opts ...handler.Option) http.Handler {
				return handler.New(newLimiter(t, newClock(), "l", limiter.PerMinute(60)), c.key, append(opts, cost)...)(&nextHandler{})
			}
			synctest.Test(t, func(t *testing.T) {
				h := limit()
				want := map[string]any{"title": "Bad Request", "status": 400.0, "detail": c.detail}
				for minute := range 2 {
					for range 20 {
						testenv.Equal(t, wantStatus(t, askBy(h, keyed()), http.StatusBadRequest), want, "the body")
					}
					testenv.Equal(t, strings.Count(log.String(), "\n"), minute+1, "lines of the log")
					<-time.After(time.Minute)
				}
			})
			text := log.String()
			testenv.Contains(t, text, "level=WARN", "limiter=l", c.fix, "suppressed=19")
			testenv.Equal(t, keyleak.Of(secret).In(log.Bytes()), nil, "traces of the key in the log", text)
			log.Reset()
			var got error
			askBy(limit(handler.OnError(func(_ *http.Request, err error) { got = err })), keyed())
			if log.Len() > 0 || got == nil || c.cost == 1 && !errors.Is(got, handler.ErrNoKey) {
				t.Errorf("OnError got %v, and the log %q", got, log)
			}
		})
	}
}

func TestFailuresAreLoggedOnceAMinute(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("limiter %q: %w: no tables", "fake", limiter.ErrMisconfigured),
		limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrInvalid, errors.New("of no class"),
	} {
		for name, opts := range map[string][]handler.Option{"": nil, "fail open": {handler.FailOpen()}, "dry run": {handler.DryRun()}} {
			t.Run(fmt.Sprint(err, " ", name), func(t *testing.T) {
				log := testenv.Logged(t)
				synctest.Test(t, func(*testing.T) {
					h := handler.New(fails(err), oneKey, opts...)(&nextHandler{})
					for range 20 {
						ask(h)
						<-time.After(3*time.Second - 1) // a minute, but for 20 ns
					}
				})
				text := log.String()
				testenv.Equal(t, strings.Count(text, "\n"), 1, "lines of the log", text)
				testenv.Contains(t, text, "level=ERROR", "limiter=fake", strings.ReplaceAll(err.Error(), `"`, `\"`))
				if strings.Contains(text, "everybody") {
					t.Errorf("the log holds the key: %s", text)
				}
			})
		}
	}
}

func TestNotLogged(t *testing.T) {
	log := testenv.Logged(t)
	for _, h := range []http.Handler{
		handler.New(fails(fmt.Errorf("%w: %w", limiter.ErrNotApplied, limiter.ErrKeyBusy)), oneKey)(&nextHandler{}),
		handler.New(fails(fmt.Errorf("%w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown)), oneKey)(&nextHandler{}),
		handler.New(&fixedLimiter{result: limiter.Result{Limit: 1, Source: limiter.SourceStore}}, oneKey)(&nextHandler{}),
		handler.New(fails(limiter.ErrMisconfigured), oneKey, handler.OnError(func(*http.Request, error) {}))(&nextHandler{}),
	} {
		ask(h)
	}
	testenv.Equal(t, log.String(), "", "the log")
}

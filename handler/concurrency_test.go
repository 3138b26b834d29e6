package handler_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

func oneAtATime(t testing.TB, store limiter.Store, opts ...limiter.Option) *limiter.Concurrency {
	t.Helper()
	c, err := limiter.NewConcurrency(store, "exports", limiter.InFlight{Limit: 1, Hold: time.Minute}, opts...)
	must(t, err)
	return c
}

func wantHeld(t *testing.T, c *limiter.Concurrency, when string, want int64) {
	t.Helper()
	if res, err := c.Peek(context.Background(), "everybody"); err != nil || res.Used != want {
		t.Errorf("%s, %d places are held, %v; want %d", when, res.Used, err, want)
	}
}

// serveInFlight starts a server whose requests hold a place of c. The channel tells when a request has ended.
func serveInFlight(t *testing.T, c *limiter.Concurrency, http2 bool, next http.HandlerFunc) (*httptest.Server, <-chan struct{}) {
	t.Helper()
	ended := make(chan struct{}, 10)
	limited := handler.NewConcurrency(c, oneKey, handler.OnError(func(_ *http.Request, err error) { t.Error(err) }))(next)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		limited.ServeHTTP(w, r)
	}))
	if server.EnableHTTP2 = http2; http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server, ended
}

// stream is a response whose body may not have ended.
type stream struct {
	proto  string
	status int
	io.ReadCloser
}

func open(ctx context.Context, t *testing.T, server *httptest.Server) stream {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
	must(t, err)
	resp, err := server.Client().Do(r)
	must(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return stream{resp.Proto, resp.StatusCode, resp.Body}
}

func TestStreamsHoldTheirPlace(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		for _, until := range []string{"they end", "they are aborted", "the client leaves"} {
			t.Run("until "+until+", "+name, func(t *testing.T) {
				c, finish := oneAtATime(t, memory.New()), make(chan struct{}, 1)
				server, ended := serveInFlight(t, c, http2, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(w, "first\n")
					w.(http.Flusher).Flush()
					select {
					case <-finish:
						if until == "they are aborted" {
							panic(http.ErrAbortHandler)
						}
						_, _ = io.WriteString(w, "last\n")
					case <-r.Context().Done():
					}
				})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				first := open(ctx, t, server)
				testenv.Equal(t, []any{first.proto, first.status}, []any{name, http.StatusOK}, "the first request")
				testenv.Equal(t, open(t.Context(), t, server).status, http.StatusTooManyRequests, "the second request")
				<-ended // the refusal
				wantHeld(t, c, "during the stream", 1)
				if until == "the client leaves" {
					leave()
					<-ended
				} else {
					finish <- struct{}{}
					whole := until == "they end"
					if body, err := io.ReadAll(first); whole != (err == nil) || whole && string(body) != "first\nlast\n" {
						t.Errorf("the stream is %q, %v", body, err)
					}
					if !whole {
						<-ended // otherwise the place is free when the client has it all
					}
				}
				wantHeld(t, c, "afterwards", 0)
			})
		}
	}
}

func TestRefusalInFlight(t *testing.T) {
	t.Parallel()
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if res, ok := handler.ResultFromContext(r.Context()); !ok || res.Allowed || res.Used != 1 {
			t.Errorf("the page finds %+v, %v", res, ok)
		}
		w.WriteHeader(http.StatusConflict)
	})
	for name, test := range map[string]struct {
		opts   []handler.Option
		status int
		header http.Header
	}{
		"is 429 and a problem document": {nil, http.StatusTooManyRequests, http.Header{
			"Retry-After": {"1"}, "Cache-Control": {"no-store"}, "Content-Type": {"application/problem+json"},
		}},
		"is what Refusal answers": {[]handler.Option{handler.Refusal(page)}, http.StatusConflict, http.Header{
			"Retry-After": {"1"}, "Cache-Control": {"no-store"},
		}},
		"only reports in a dry run": {[]handler.Option{handler.DryRun()}, http.StatusTeapot, http.Header{}},
	} {
		t.Run(name, func(t *testing.T) {
			store := newFakeStore()
			c := oneAtATime(t, store)
			var told []limiter.Result
			limit := handler.NewConcurrency(c, oneKey, append(test.opts, handler.OnRefusal(func(r *http.Request, res limiter.Result) {
				if seen, ok := handler.ResultFromContext(r.Context()); !ok || seen != res {
					t.Errorf("the request of the hook has %+v, the hook %+v", seen, res)
				}
				told = append(told, res)
			}))...)
			next := &nextHandler{}
			second := limit(next)
			first := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if res, ok := handler.ResultFromContext(r.Context()); !ok || !res.Allowed || res.Policy != c.Policy() {
					t.Errorf("the handler finds %+v, %v", res, ok)
				}
				resp := ask(second)
				if test.status == http.StatusTooManyRequests {
					problem := wantStatus(t, resp, test.status)
					testenv.Equal[any](t, problem["violated-policies"], []any{"exports"}, "the limiters that the problem names")
				}
				testenv.Equal(t, []any{resp.status, resp.header}, []any{test.status, test.header}, "the refusal")
				wantHeld(t, c, "after a refusal", 1)
				next.ServeHTTP(w, r)
			}))
			wantStatus(t, ask(first), http.StatusTeapot)
			if len(told) != 1 || told[0].Limit != 1 || store.sent[limiter.OpRelease] != 1 {
				t.Errorf("OnRefusal got %+v, the store %v; want a refusal, and a release of the first request", told, store.sent)
			}
			wantStatus(t, ask(second), http.StatusTeapot) // there is a place again
		})
	}
}

func TestRatesInside(t *testing.T) {
	t.Parallel()
	c := oneAtATime(t, memory.New())
	rates := handler.New(newLimiter(t, newClock(), "rate", limiter.PerHour(1)), oneKey)
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(got http.ResponseWriter, _ *http.Request) {
		if got != http.ResponseWriter(w) { // a copy would lose http.Flusher, http.Hijacker and others
			t.Errorf("the handler got a %T, want the ResponseWriter of the server", got)
		}
	})
	h := handler.NewConcurrency(c, oneKey)(rates(mux))
	h.ServeHTTP(w, r)
	testenv.Equal(t, []any{w.Code, r.Pattern}, []any{http.StatusOK, "GET /"}, "the status, and the pattern outside of both")
	resp := ask(h)
	wantStatus(t, resp, http.StatusTooManyRequests)
	wantHeaders(t, resp.header, map[string]string{"Retry-After": "3600", "RateLimit": `"rate";r=0;t=3600`, "RateLimit-Policy": `"rate";q=1;w=3600`})
	wantHeld(t, c, "after a refusal by the rate", 0)
}

func TestNoDecisionInFlight(t *testing.T) {
	t.Parallel()
	noKey := func(*http.Request) (string, error) { return "", nil }
	for name, test := range map[string]struct {
		acquires error
		key      handler.KeyFunc
		opts     []handler.Option
		status   int
		releases int // that are sent; the first is the limiter's own, and fails
	}{
		"a failed store":                      {limiter.ErrNotApplied, oneKey, nil, 503, 0},
		"a failed store, FailOpen":            {limiter.ErrNotApplied, oneKey, []handler.Option{handler.FailOpen()}, 418, 0},
		"an unknown outcome":                  {limiter.ErrOutcomeUnknown, oneKey, nil, 503, 2},
		"an unknown outcome, FailOpen":        {limiter.ErrOutcomeUnknown, oneKey, []handler.Option{handler.FailOpen()}, 418, 2},
		"an unknown outcome, DryRun":          {limiter.ErrOutcomeUnknown, oneKey, []handler.Option{handler.DryRun()}, 418, 2},
		"a misconfigured store, FailOpen":     {limiter.ErrMisconfigured, oneKey, []handler.Option{handler.FailOpen()}, 503, 0},
		"a store without leases":              {errors.ErrUnsupported, oneKey, nil, 503, 0},
		"no key":                              {nil, noKey, []handler.Option{handler.FailOpen()}, 400, 0},
		"no key, DryRun":                      {nil, noKey, []handler.Option{handler.DryRun()}, 418, 0},
		"a policy that is no limit in flight": {limiter.ErrInvalid, oneKey, nil, 500, 0},
		"a skipped request":                   {limiter.ErrNotApplied, noKey, []handler.Option{handler.Skip(func(*http.Request) bool { return true })}, 418, 0},
	} {
		t.Run(name, func(t *testing.T) {
			store := newFakeStore()
			store.fails = func(ctx context.Context, op limiter.Op, n int) error {
				switch {
				case op.Kind == limiter.OpRelease && n == 1:
					return limiter.ErrNotApplied
				case op.Kind != limiter.OpAcquire:
					return nil
				case errors.Is(test.acquires, limiter.ErrOutcomeUnknown):
					_, _ = store.Store.Do(ctx, op)
				}
				return test.acquires
			}
			c := oneAtATime(t, store)
			var reported []error
			h := handler.NewConcurrency(c, test.key, append(test.opts, handler.OnError(func(_ *http.Request, err error) {
				reported = append(reported, err)
			}))...)(&nextHandler{})
			resp := ask(h)
			wantStatus(t, resp, test.status)
			if test.status == http.StatusServiceUnavailable {
				wantHeaders(t, resp.header, map[string]string{"Retry-After": "1"})
			}
			if name == "a skipped request" {
				testenv.Equal(t, len(reported)+len(store.sent), 0, "errors and operations")
				return
			}
			if len(reported) != 1 || test.acquires != nil && !errors.Is(reported[0], test.acquires) {
				t.Errorf("OnError got %v, want %v once", reported, test.acquires)
			}
			testenv.Equal(t, store.sent[limiter.OpRelease], test.releases, "releases")
			wantHeld(t, c, "afterwards", 0)
		})
	}
}

func TestFailedRelease(t *testing.T) {
	t.Parallel()
	always := slices.Repeat([]error{limiter.ErrNotApplied}, 100)
	for name, test := range map[string]struct {
		releases []error
		hangs    bool
		reported error
		deadline time.Duration // of the request; 0 is none
		takes    time.Duration // of all tries
		held     int64
	}{
		"once is sent again":         {[]error{limiter.ErrNotApplied}, false, nil, 0, 50 * time.Millisecond, 0},
		"of unknown outcome":         {[]error{limiter.ErrOutcomeUnknown, limiter.ErrKeyBusy}, false, nil, 0, 100 * time.Millisecond, 0},
		"is reported after 1 s":      {always, false, limiter.ErrNotApplied, 0, 950 * time.Millisecond, 1},
		"is cut off and reported":    {nil, true, limiter.ErrOutcomeUnknown, 0, time.Second, 1},
		"ends before a deadline":     {always, false, limiter.ErrNotApplied, 400 * time.Millisecond, 250 * time.Millisecond, 1},
		"and a late deadline":        {always, false, limiter.ErrNotApplied, time.Hour, 950 * time.Millisecond, 1},
		"is cut off at a deadline":   {nil, true, limiter.ErrOutcomeUnknown, 400 * time.Millisecond, 400 * time.Millisecond, 1},
		"is cut off before it":       {nil, true, limiter.ErrOutcomeUnknown, time.Hour, time.Second, 1},
		"is sent right before it":    {nil, false, nil, time.Millisecond, 0, 0},
		"goes on after the deadline": {always, false, limiter.ErrNotApplied, time.Nanosecond, 950*time.Millisecond + 1, 1},
		"that does not fail":         {nil, false, nil, 0, 0, 0},
		"is told by its first one":   {append([]error{limiter.ErrMisconfigured}, always...), false, limiter.ErrMisconfigured, 0, 950 * time.Millisecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFakeStore()
				store.fails = func(ctx context.Context, op limiter.Op, n int) error {
					switch {
					case op.Kind != limiter.OpRelease:
						return nil
					case test.hangs:
						<-ctx.Done()
						return fmt.Errorf("%w: %w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown, ctx.Err())
					case n <= len(test.releases):
						return test.releases[n-1]
					}
					return nil
				}
				c := oneAtATime(t, store)
				var reported error
				h := handler.NewConcurrency(c, oneKey, handler.OnError(func(_ *http.Request, err error) { reported = err }))(
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if test.deadline == time.Nanosecond {
							<-r.Context().Done()
						}
						w.WriteHeader(http.StatusTeapot)
					}))
				r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
				if test.deadline != 0 {
					ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
					defer cancel()
					r = r.WithContext(ctx)
				}
				begin := time.Now()
				wantStatus(t, askBy(h, r), http.StatusTeapot)
				testenv.Equal(t, time.Since(begin), test.takes, "the time of the request")
				if !errors.Is(reported, test.reported) || errors.Is(reported, limiter.ErrCanceled) {
					t.Errorf("OnError got %v, want %v", reported, test.reported)
				}
				wantHeld(t, c, "afterwards", test.held)
				<-time.After(time.Minute)
				wantHeld(t, c, "after its time", 0)
			})
		})
	}
}

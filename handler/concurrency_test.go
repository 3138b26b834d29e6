package handler_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

// leaseStore is a store in memory that fails as a test says.
type leaseStore struct {
	*memory.Store
	acquires error // of acquires, which are carried out if it matches ErrOutcomeUnknown
	hangs    bool  // releases wait for the end of their context

	mu       sync.Mutex
	releases []error // of the next releases
	sent     map[limiter.OpKind]int
}

func newLeaseStore(opts ...memory.Option) *leaseStore {
	return &leaseStore{Store: memory.New(opts...), sent: map[limiter.OpKind]int{}}
}

func (s *leaseStore) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	release := s.note(op.Kind)
	switch op.Kind {
	case limiter.OpAcquire:
		if errors.Is(s.acquires, limiter.ErrOutcomeUnknown) {
			_, _ = s.Store.Do(ctx, op)
		}
		if s.acquires != nil {
			return limiter.State{}, s.acquires
		}
	case limiter.OpRelease:
		if s.hangs {
			<-ctx.Done()
			return limiter.State{}, fmt.Errorf("%w: %w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown, ctx.Err())
		}
		if release != nil {
			return limiter.State{}, release
		}
	}
	return s.Store.Do(ctx, op)
}

// note counts an operation, and returns the error of a release.
func (s *leaseStore) note(kind limiter.OpKind) (release error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[kind]++
	if kind == limiter.OpRelease && len(s.releases) > 0 {
		release, s.releases = s.releases[0], s.releases[1:]
	}
	return release
}

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

func TestPlacesAreReleased(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		does  func(ctx context.Context, leave func())
		panic string
	}{
		"when next returns":               {func(context.Context, func()) {}, ""},
		"when next panics":                {func(context.Context, func()) { panic("broken") }, "broken"},
		"when next aborts the connection": {func(context.Context, func()) { panic(http.ErrAbortHandler) }, http.ErrAbortHandler.Error()},
		"when the client has left": {func(ctx context.Context, leave func()) {
			leave()
			<-ctx.Done()
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := oneAtATime(t, memory.New())
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			h := handler.NewConcurrency(c, oneKey, handler.OnError(func(_ *http.Request, err error) { t.Error(err) }))(
				http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					wantHeld(t, c, "in next", 1)
					test.does(r.Context(), leave)
				}))
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
			if got := panicOf(func() { askBy(h, r) }); got != test.panic {
				t.Errorf("the panic is %q, want %q", got, test.panic)
			}
			wantHeld(t, c, "afterwards", 0)
		})
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
			t.Parallel()
			store := newLeaseStore()
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
					if got := violated(wantStatus(t, resp, test.status)); !slices.Equal(got, []string{"exports"}) {
						t.Errorf("the problem names %q, want the limiter", got)
					}
				}
				if resp.status != test.status || !reflect.DeepEqual(resp.header, test.header) {
					t.Errorf("%d with %v, want %d with %v", resp.status, resp.header, test.status, test.header)
				}
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
	mux := http.NewServeMux()
	mux.Handle("GET /", &nextHandler{})
	h := handler.NewConcurrency(c, oneKey)(rates(mux))
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	wantStatus(t, askBy(h, r), http.StatusTeapot)
	if r.Pattern != "GET /" {
		t.Errorf("middleware outside of both sees the pattern %q", r.Pattern)
	}
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newLeaseStore()
			store.acquires, store.releases = test.acquires, []error{limiter.ErrNotApplied}
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
			if len(reported) != 1 || test.acquires != nil && !errors.Is(reported[0], test.acquires) {
				t.Errorf("OnError got %v, want %v once", reported, test.acquires)
			}
			if got := store.sent[limiter.OpRelease]; got != test.releases {
				t.Errorf("%d releases, want %d", got, test.releases)
			}
			wantHeld(t, c, "afterwards", 0)
		})
	}
}

func TestFailedRelease(t *testing.T) {
	t.Parallel()
	always := make([]error, 100)
	for i := range always {
		always[i] = limiter.ErrNotApplied
	}
	for name, test := range map[string]struct {
		releases []error
		hangs    bool
		reported error
		takes    time.Duration // of all tries
		held     int64
	}{
		"once is sent again":       {[]error{limiter.ErrNotApplied}, false, nil, 50 * time.Millisecond, 0},
		"of unknown outcome":       {[]error{limiter.ErrOutcomeUnknown, limiter.ErrKeyBusy}, false, nil, 100 * time.Millisecond, 0},
		"is reported after 1 s":    {always, false, limiter.ErrNotApplied, time.Second, 1},
		"is cut off and reported":  {nil, true, limiter.ErrOutcomeUnknown, time.Second, 1},
		"that does not fail":       {nil, false, nil, 0, 0},
		"is told by its first one": {append([]error{limiter.ErrMisconfigured}, always...), false, limiter.ErrMisconfigured, time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newLeaseStore()
				store.releases, store.hangs = test.releases, test.hangs
				c := oneAtATime(t, store)
				var reported error
				h := handler.NewConcurrency(c, oneKey, handler.OnError(func(_ *http.Request, err error) { reported = err }))(&nextHandler{})
				begin := time.Now()
				wantStatus(t, ask(h), http.StatusTeapot)
				if took := time.Since(begin); took != test.takes {
					t.Errorf("the request took %v, want %v", took, test.takes)
				}
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

func TestSkipInFlight(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]handler.Option{
		"Skip":          handler.Skip(func(r *http.Request) bool { return r.Method == http.MethodOptions }),
		"SkipPreflight": handler.SkipPreflight(),
	} {
		store, next := newLeaseStore(), &nextHandler{}
		h := handler.NewConcurrency(oneAtATime(t, store), oneKey, opt)(next)
		wantStatus(t, askBy(h, preflight()), http.StatusTeapot)
		if len(store.sent) > 0 {
			t.Errorf("%s: the store got %v", name, store.sent)
		}
		wantStatus(t, ask(h), http.StatusTeapot)
		if store.sent[limiter.OpAcquire] != 1 {
			t.Errorf("%s: the store got %v, want an acquire of the other request", name, store.sent)
		}
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
				t.Parallel()
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
				if first.proto != name || first.status != http.StatusOK {
					t.Errorf("%s %d", first.proto, first.status)
				}
				if second := open(t.Context(), t, server); second.status != http.StatusTooManyRequests {
					t.Errorf("the second request gets %d, want a refusal", second.status)
				}
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

func TestHijackedConnections(t *testing.T) {
	t.Parallel()
	c := oneAtATime(t, memory.New())
	server, ended := serveInFlight(t, c, false, func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buf.ReadString('\n')
		_, _ = io.WriteString(conn, line)
		_, _ = buf.ReadString('\n') // until the client closes
	})
	conn := open(t.Context(), t, server).ReadCloser.(io.ReadWriteCloser)
	must(t, testenv.ErrorOf(io.WriteString(conn, "hello\n")))
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "hello\n" || err != nil {
		t.Errorf("the echo is %q, %v", line, err)
	}
	wantHeld(t, c, "while the connection is open", 1)
	must(t, conn.Close())
	<-ended
	wantHeld(t, c, "after it was closed", 0)
}

func TestAMillionRequestsInFlight(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	requests := 1_000_000
	if testenv.Race {
		requests /= 20
	}
	now := time.Now()
	store := memory.New(memory.WithClock(func() time.Time { return now }))
	c := oneAtATime(t, store)
	var served, refused atomic.Int64
	h := handler.NewConcurrency(c, oneKey, handler.OnRefusal(func(*http.Request, limiter.Result) { refused.Add(1) }))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if served.Add(1)%1000 == 0 {
				panic(http.ErrAbortHandler)
			}
		}))
	before := goleak.IgnoreCurrent()
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			w, r := &httptest.ResponseRecorder{}, httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			for range requests / 2 {
				panicOf(func() { h.ServeHTTP(w, r) })
			}
		})
	}
	group.Wait()
	wantHeld(t, c, "after all requests", 0)
	if n := served.Load() + refused.Load(); n != int64(requests) {
		t.Errorf("%d requests were served or refused, want %d", n, requests)
	}
	goleak.VerifyNone(t, before)
	now = now.Add(48 * time.Hour)
	if rows, err := store.Sweep(t.Context(), 10); rows != 1 || err != nil {
		t.Errorf("the store had %d rows, %v; want 1", rows, err)
	}
}

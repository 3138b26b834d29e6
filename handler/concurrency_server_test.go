package handler_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

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

// open sends a request to the server.
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
		// finish says how the stream goes on after its first line: true to its end, false to a panic.
		serve := func(t *testing.T) (*limiter.Concurrency, *httptest.Server, <-chan struct{}, chan<- bool) {
			c, finish := oneAtATime(t, memory.New()), make(chan bool, 1)
			server, ended := serveInFlight(t, c, http2, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "first\n")
				w.(http.Flusher).Flush()
				select {
				case ok := <-finish:
					if !ok {
						panic(http.ErrAbortHandler)
					}
					_, _ = io.WriteString(w, "last\n")
				case <-r.Context().Done():
				}
			})
			return c, server, ended, finish
		}
		t.Run("until they end, "+name, func(t *testing.T) {
			t.Parallel()
			c, server, _, finish := serve(t)
			first := open(t.Context(), t, server)
			if first.proto != name || first.status != http.StatusOK {
				t.Errorf("%s %d", first.proto, first.status)
			}
			if second := open(t.Context(), t, server); second.status != http.StatusTooManyRequests {
				t.Errorf("the second request gets %d, want a refusal", second.status)
			}
			wantHeld(t, c, "during the stream", 1)
			finish <- true
			if body, err := io.ReadAll(first); string(body) != "first\nlast\n" || err != nil {
				t.Errorf("the stream is %q, %v", body, err)
			}
			wantHeld(t, c, "when the client has it all", 0)
			if third := open(t.Context(), t, server); third.status != http.StatusOK {
				t.Errorf("the next request gets %d", third.status)
			}
			finish <- true
		})
		t.Run("until they are aborted, "+name, func(t *testing.T) {
			t.Parallel()
			c, server, ended, finish := serve(t)
			resp := open(t.Context(), t, server)
			finish <- false
			if body, err := io.ReadAll(resp); err == nil {
				t.Errorf("the stream is whole: %q", body)
			}
			<-ended
			wantHeld(t, c, "after the panic", 0)
		})
		t.Run("until the client leaves, "+name, func(t *testing.T) {
			t.Parallel()
			c, server, ended, _ := serve(t)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			open(ctx, t, server)
			wantHeld(t, c, "during the stream", 1)
			leave()
			<-ended
			wantHeld(t, c, "afterwards", 0)
		})
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
	before := runtime.NumGoroutine()
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
	for tries := 0; runtime.NumGoroutine() > before && tries < 1_000_000; tries++ {
		runtime.Gosched() // the two of this test may be about to end
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines after %d requests, %d before", after, requests, before)
	}
	now = now.Add(48 * time.Hour)
	if rows, err := store.Sweep(t.Context(), 10); rows != 1 || err != nil {
		t.Errorf("the store had %d rows, %v; want 1", rows, err)
	}
}

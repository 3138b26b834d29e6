package handler_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

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

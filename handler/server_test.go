package handler_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

var perMinute = limiter.PerMinute(60)

// serve starts a real server on loopback.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

// get asks a server and reads all of its answer.
func get(t *testing.T, server *httptest.Server, path string) reply {
	t.Helper()
	resp, err := server.Client().Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, body}
}

func TestTheResponseWriterIsNotWrapped(t *testing.T) {
	t.Parallel()
	limit := handler.New(newLimiter(t, newClock(), "l", perMinute), handler.ClientIP())
	read := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/flush", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-read
		_, _ = io.WriteString(w, "second\n")
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buf.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhijacked")
		_, _ = buf.Flush(), conn.Close()
	})
	mux.HandleFunc("/copy", func(w http.ResponseWriter, _ *http.Request) {
		if _, ok := w.(io.ReaderFrom); !ok {
			t.Error("the ResponseWriter is no io.ReaderFrom any more, and sendfile is lost")
		}
	})
	server := serve(t, limit(mux))

	resp, err := server.Client().Get(server.URL + "/flush")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	line, err := lines.ReadString('\n')
	if err != nil || line != "first\n" || resp.Header.Get("RateLimit") != `"l";r=59;t=1` {
		t.Errorf("%q, %v, RateLimit %q: want what was flushed, before the handler ended", line, err, resp.Header.Get("RateLimit"))
	}
	close(read)
	if line, err = lines.ReadString('\n'); err != nil || line != "second\n" {
		t.Errorf("%q, %v", line, err)
	}
	if body := get(t, server, "/hijack").body; string(body) != "hijacked" {
		t.Errorf("%q, want what was written to the connection", body)
	}
	get(t, server, "/copy")
}

func TestHundredClientsGetExactlyWhatThePolicyAllows(t *testing.T) {
	t.Parallel()
	l, err := limiter.New(memory.New(), "l", limiter.TokenBucket{Capacity: 250, Refill: 1, Interval: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var passed atomic.Int64
	server := serve(t, handler.New(l, handler.ClientIP())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed.Add(1) })))
	var allowed, refused atomic.Int64
	var wait sync.WaitGroup
	for range 100 {
		wait.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for range 5 {
				resp, err := client.Get(server.URL)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				switch {
				case resp.StatusCode == http.StatusOK:
					allowed.Add(1)
				case resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "":
					refused.Add(1)
				default:
					t.Errorf("%d with %v", resp.StatusCode, resp.Header)
				}
			}
		})
	}
	wait.Wait()
	if allowed.Load() != 250 || refused.Load() != 250 || passed.Load() != 250 {
		t.Errorf("%d allowed, %d refused, %d served; want 250 of each", allowed.Load(), refused.Load(), passed.Load())
	}
}

func TestOverARealConnectionAnAddressIsLimitedAsAWhole(t *testing.T) {
	t.Parallel()
	server := serve(t, handler.New(newLimiter(t, newClock(), "l", limiter.PerMinute(2)), handler.ClientIP())(&nextHandler{}))
	for i, want := range []int{http.StatusTeapot, http.StatusTeapot, http.StatusTooManyRequests} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://")) // from another port each time
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.%d\r\nConnection: close\r\n\r\n", i)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, resp.StatusCode, want)
		}
		_, _ = resp.Body.Close(), conn.Close()
	}
}

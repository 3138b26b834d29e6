package handler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

var must = testenv.Must

// clock is a time that a test moves.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

func (c *clock) add(d time.Duration) { c.now = c.now.Add(d) }

// newLimiter returns a limiter in memory on the clock.
func newLimiter(t testing.TB, c *clock, name string, p limiter.Policy) *limiter.Limiter {
	t.Helper()
	return newOn(t, memory.New(), c, name, p)
}

// oneKey is one key for all.
func oneKey(*http.Request) (string, error) { return "everybody", nil }

// nextHandler is a handler that counts its calls.
type nextHandler struct{ calls int }

func (s *nextHandler) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.calls++
	w.WriteHeader(http.StatusTeapot)
}

// reply is a response with all of its body.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// ask sends a request from 192.0.2.1.
func ask(h http.Handler) reply {
	return askBy(h, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
}

func askBy(h http.Handler, r *http.Request) reply {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return reply{w.Code, w.Header(), w.Body.Bytes()}
}

// fixedLimiter is a limiter that always returns the same result.
type fixedLimiter struct {
	policy limiter.Policy
	result limiter.Result
	err    error
	asked  []int64
}

func (l *fixedLimiter) AllowN(_ context.Context, _ string, n int64) (limiter.Result, error) {
	l.asked = append(l.asked, n)
	return l.result, l.err
}

func (*fixedLimiter) Name() string { return "fake" }

func (l *fixedLimiter) Policy() limiter.Policy {
	if l.policy == nil {
		return limiter.PerSecond(10)
	}
	return l.policy
}

// fails is a limiter that makes no decision.
func fails(err error) *fixedLimiter {
	return &fixedLimiter{result: limiter.Result{Source: limiter.SourcePolicy}, err: err}
}

// wantStatus checks a status, and that what is not the next handler's is a problem document of it.
func wantStatus(t *testing.T, resp reply, want int) (problem map[string]any) {
	t.Helper()
	if resp.status != want {
		t.Errorf("status %d, want %d", resp.status, want)
	}
	if want == http.StatusTeapot {
		return nil
	}
	if got := resp.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	if got := resp.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q, want no-store", got)
	}
	if err := json.Unmarshal(resp.body, &problem); err != nil {
		t.Errorf("the body is no JSON: %v", err)
	}
	if problem["status"] != float64(want) || problem["title"] == "" {
		t.Errorf("problem %v, want status %d and a title", problem, want)
	}
	if detail, _ := problem["detail"].(string); (want != http.StatusTooManyRequests || detail != "") && !slices.Contains(details, detail) {
		t.Errorf("detail %q, want one of the list", detail)
	}
	return problem
}

// panicOf returns what f panics with, "" if it does not.
func panicOf(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

// wantAdvice checks that a panic is of this package and says what to do.
func wantAdvice(t *testing.T, what, text, advice string) {
	t.Helper()
	if !strings.HasPrefix(text, "handler: ") || !strings.Contains(text, advice) {
		t.Errorf("%s: the panic says %q, want a text of this package with %q", what, text, advice)
	}
}

func wantPanic(t *testing.T, what, advice string, f func()) {
	t.Helper()
	wantAdvice(t, what, panicOf(f), advice)
}

// details are all that clients learn about a request without a decision.
var details = []string{
	"The rate limiter could not decide.",
	"The rate limiter was used wrongly.",
	"The request costs more than its rate limit ever admits.",
	"The request has no key for its rate limit.",
	"The client's address is unknown.",
	"A required header field is missing, empty or repeated.",
	"The request matched no route.",
	"The request has no authenticated user.",
}

// wantHeaders checks header fields; "" is for one that must not be there.
func wantHeaders(t *testing.T, h http.Header, want map[string]string) {
	t.Helper()
	for name, value := range want {
		lines := h.Values(name)
		if value == "" && len(lines) > 0 || value != "" && (len(lines) != 1 || lines[0] != value) {
			t.Errorf("%s: %q, want %q", name, lines, value)
		}
	}
}

var _ handler.Limiter = (*limiter.Limiter)(nil)

package handler_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

var must = testenv.Must

type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

func (c *clock) add(d time.Duration) { c.now = c.now.Add(d) }

func newLimiter(t testing.TB, c *clock, name string, p limiter.Policy) *limiter.Limiter {
	t.Helper()
	return newOn(t, memory.New(), c, name, p)
}

func oneKey(*http.Request) (string, error) { return "everybody", nil }

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

type fixedLimiter struct {
	name   string
	policy limiter.Policy
	result limiter.Result
	err    error
	asked  []int64
}

func (l *fixedLimiter) AllowN(_ context.Context, _ string, n int64) (limiter.Result, error) {
	l.asked = append(l.asked, n)
	return l.result, l.err
}

func (l *fixedLimiter) Name() string { return cmp.Or(l.name, "fake") }

func (l *fixedLimiter) Policy() limiter.Policy {
	return cmp.Or[limiter.Policy](l.policy, limiter.PerSecond(10))
}

func fails(err error) *fixedLimiter {
	return &fixedLimiter{result: limiter.Result{Source: limiter.SourcePolicy}, err: err}
}

// wantStatus checks a status, and that what is not the next handler's is a problem document of it.
func wantStatus(t *testing.T, resp reply, want int) (problem map[string]any) {
	t.Helper()
	testenv.Equal(t, resp.status, want, "status")
	if want == http.StatusTeapot {
		return nil
	}
	testenv.Equal(t, resp.header.Get("Content-Type"), "application/problem+json", "Content-Type")
	testenv.Equal(t, resp.header.Get("Cache-Control"), "no-store", "Cache-Control")
	testenv.ErrorIs(t, json.Unmarshal(resp.body, &problem), nil, "the body in JSON")
	if problem["status"] != float64(want) || problem["title"] == "" {
		t.Errorf("problem %v, want status %d and a title", problem, want)
	}
	if detail, _ := problem["detail"].(string); (want != http.StatusTooManyRequests || detail != "") && !slices.Contains(details, detail) {
		t.Errorf("detail %q, want one of the list", detail)
	}
	return problem
}

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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStore is a store in memory that counts operations. fails, if set, is called with each of them and how many
// of its kind came so far. The operation is not carried out if it returns an error.
type fakeStore struct {
	*memory.Store
	fails func(ctx context.Context, op limiter.Op, n int) error
	all   error // of operations on several keys

	mu   sync.Mutex
	sent map[limiter.OpKind]int
}

func newFakeStore() *fakeStore {
	return &fakeStore{Store: memory.New(), sent: map[limiter.OpKind]int{}}
}

func (s *fakeStore) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	s.mu.Lock()
	s.sent[op.Kind]++
	n := s.sent[op.Kind]
	s.mu.Unlock()
	if s.fails != nil {
		if err := s.fails(ctx, op, n); err != nil {
			return limiter.State{}, err
		}
	}
	return s.Store.Do(ctx, op)
}

func (s *fakeStore) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	if s.all != nil {
		return nil, s.all
	}
	return s.Store.DoAll(ctx, ops)
}

func newOn(t testing.TB, store limiter.Store, c *clock, name string, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(store, name, p, append(opts, limiter.WithClock(func() time.Time { return c.now }))...)
	must(t, err)
	return l
}

// burstAndDay returns two rules for everybody: a bucket of 3, and a window of limit.
func burstAndDay(t testing.TB, store limiter.Store, c *clock, limit int64, opts ...limiter.Option) []handler.Rule {
	t.Helper()
	return []handler.Rule{
		{Limiter: newOn(t, store, c, "burst", limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: 2 * time.Second}, opts...), Key: oneKey},
		{Limiter: newOn(t, store, c, "day", limiter.FixedWindow{Limit: limit, Window: 24 * time.Hour}, opts...), Key: oneKey},
	}
}

func costOf(name string) func(*http.Request) int64 {
	return func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
		return n
	}
}

func left(t *testing.T, rules []handler.Rule) (left []int64) {
	t.Helper()
	for _, rule := range rules {
		res, err := rule.Limiter.Peek(t.Context(), "everybody")
		must(t, err)
		left = append(left, res.Remaining)
	}
	return left
}

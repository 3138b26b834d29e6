package handler_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

func TestOnlyFailuresAreCharged(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := newLimiter(t, c, "login", limiter.TokenBucket{Capacity: 2, Refill: 1, Interval: time.Hour})
	login := handler.New(l, oneKey, handler.ChargeFailures())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.Succeeded(r.Context())
		handler.Succeeded(r.Context()) // once more gives nothing more back
	}))
	try := func(password string, status int, left int64) {
		t.Helper()
		resp := askBy(login, httptest.NewRequest(http.MethodPost, "/?password="+password, http.NoBody))
		res, err := l.Peek(t.Context(), "everybody")
		if resp.status != status || err != nil || res.Remaining != left {
			t.Errorf("password %s: status %d, %d left, %v; want %d and %d", password, resp.status, res.Remaining, err, status, left)
		}
	}
	for range 5 {
		try("right", http.StatusOK, 2)
	}
	try("wrong", http.StatusUnauthorized, 1)
	try("right", http.StatusOK, 1)
	try("wrong", http.StatusUnauthorized, 0)
	try("right", http.StatusTooManyRequests, 0)
	c.add(time.Hour)
	try("right", http.StatusOK, 1)
}

func TestSucceededReachesAllThatChargeFailuresAndNoOthers(t *testing.T) {
	t.Parallel()
	c := newClock()
	account := newLimiter(t, c, "account", limiter.PerDay(10))
	address := newLimiter(t, c, "address", limiter.PerDay(10))
	all := newLimiter(t, c, "all", limiter.PerDay(10))
	h := handler.New(address, oneKey, handler.ChargeFailures())(handler.New(all, oneKey)(
		handler.New(account, oneKey, handler.ChargeFailures())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			handler.Succeeded(r.Context())
		}))))
	ask(h)
	for l, want := range map[*limiter.Limiter]int64{account: 10, address: 10, all: 9} {
		if res, err := l.Peek(t.Context(), "everybody"); err != nil || res.Remaining != want {
			t.Errorf("%s has %d left, %v; want %d", l.Name(), res.Remaining, err, want)
		}
	}
	handler.Succeeded(t.Context()) // without a limiter around it it does nothing
}

// refunds is a limiter that counts refunds, and fails at them.
type refunds struct {
	answers
	ctxErr   error
	deadline time.Time
	cost     []int64
}

func (r *refunds) Refund(ctx context.Context, _ string, n int64) error {
	r.ctxErr, r.cost = ctx.Err(), append(r.cost, n)
	r.deadline, _ = ctx.Deadline()
	return limiter.ErrNotApplied
}

func TestAChargeIsGivenBackOnlyWhereThereWasOne(t *testing.T) {
	t.Parallel()
	allowed := limiter.Result{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: time.Hour, Source: limiter.SourceStore}
	byPolicy := limiter.Result{Allowed: true, ResetAfter: time.Hour, Source: limiter.SourcePolicy}
	local := allowed
	local.Source = limiter.SourceLocal
	for _, c := range []struct {
		name   string
		result limiter.Result
		cost   int64
		panics bool
		want   int
	}{
		{"a charge", allowed, 3, false, 1},
		{"a look", allowed, 0, false, 0},
		{"a charge of which nothing is left", limiter.Result{Allowed: true, Limit: 10, ResetAfter: 1, Source: limiter.SourceStore}, 3, false, 0},
		{"let pass while the store was down", byPolicy, 3, false, 0},
		{"charged by a fallback, which no refund reaches", local, 3, false, 0},
		{"the handler panicked", allowed, 3, true, 0},
		{"a refusal in a dry run", limiter.Result{Limit: 10, RetryAfter: 1, Source: limiter.SourceStore}, 3, false, 0},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		l := &refunds{answers: answers{result: c.result}}
		var reported []error
		h := handler.New(l, oneKey, handler.ChargeFailures(), handler.DryRun(),
			handler.Cost(func(*http.Request) int64 { return c.cost }),
			handler.OnError(func(_ *http.Request, err error) { reported = append(reported, err) }),
		)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			handler.Succeeded(r.Context())
			cancel() // the client goes as soon as it has its answer
			if c.panics {
				panic(http.ErrAbortHandler)
			}
		}))
		func() {
			defer func() { _ = recover() }()
			askBy(h, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		}()
		if len(l.cost) != c.want || c.want == 1 && (l.cost[0] != c.cost || l.ctxErr != nil) {
			t.Errorf("%s: given back %v in a context with error %v, want %d times %d", c.name, l.cost, l.ctxErr, c.want, c.cost)
		}
		if len(reported) != c.want || c.want == 1 && !errors.Is(reported[0], limiter.ErrNotApplied) {
			t.Errorf("%s: OnError got %v", c.name, reported)
		}
	}
}

func TestARefundHasTheTimeThatTheRequestHas(t *testing.T) {
	t.Parallel()
	l := &refunds{answers: answers{result: limiter.Result{Allowed: true, ResetAfter: time.Hour, Source: limiter.SourceStore}}}
	h := handler.New(l, oneKey, handler.ChargeFailures())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		handler.Succeeded(r.Context())
	}))
	ask(h)
	if len(l.cost) != 1 || !l.deadline.IsZero() {
		t.Errorf("%d refunds, the last until %v; want one without a deadline", len(l.cost), l.deadline)
	}
	end := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), end)
	defer cancel()
	askBy(h, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
	if len(l.cost) != 2 || !l.deadline.Equal(end) {
		t.Errorf("%d refunds, the last until %v; want a second until %v", len(l.cost), l.deadline, end)
	}
}

func TestALateRefundDoesNotLiftWhatOthersWereCharged(t *testing.T) {
	t.Parallel()
	for _, p := range []limiter.Policy{
		limiter.FixedWindow{Limit: 2, Window: 20 * time.Millisecond},
		limiter.TokenBucket{Capacity: 2, Refill: 2, Interval: 20 * time.Millisecond},
	} {
		now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		l, err := limiter.New(memory.New(), "login", p, limiter.WithClock(func() time.Time { return now }))
		if err != nil {
			t.Fatal(err)
		}
		h := handler.New(l, oneKey, handler.ChargeFailures())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			// While this one is at work, its window ends, and others use the next one up.
			<-time.After(30 * time.Millisecond)
			now = now.Add(30 * time.Millisecond)
			if res, err := l.AllowN(r.Context(), "everybody", 2); err != nil || !res.Allowed {
				t.Errorf("AllowN = %+v, %v", res, err)
			}
			handler.Succeeded(r.Context())
		}))
		ask(h)
		if res, err := l.Peek(t.Context(), "everybody"); err != nil || res.Remaining != 0 {
			t.Errorf("%T: %d left, %v; want none", p, res.Remaining, err)
		}
	}
}

package handler_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
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

var succeeds = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handler.Succeeded(r.Context()) })

func TestSucceededReachesEveryLimiter(t *testing.T) {
	t.Parallel()
	c := newClock()
	account := newLimiter(t, c, "account", limiter.PerDay(10))
	address := newLimiter(t, c, "address", limiter.PerDay(10))
	all := newLimiter(t, c, "all", limiter.PerDay(10))
	h := handler.New(address, oneKey, handler.ChargeFailures())(handler.New(all, oneKey)(
		handler.New(account, oneKey, handler.ChargeFailures())(succeeds)))
	ask(h)
	for l, want := range map[*limiter.Limiter]int64{account: 10, address: 10, all: 9} {
		testenv.Equal(t, left(t, []handler.Rule{{Limiter: l}}), []int64{want}, l.Name(), "has left")
	}
	handler.Succeeded(t.Context()) // without a limiter around it it does nothing
}

func TestCostIsGivenBackWhereItWasTaken(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(time.Hour)
	bounded, stop := context.WithDeadline(t.Context(), end)
	defer stop()
	for _, c := range []struct {
		name            string
		cost            int64
		down            bool
		opt             limiter.Option
		panics          bool
		store, fallback int // refunds that they get
	}{
		{"a charge", 3, false, limiter.FailClosed(), false, 1, 0},
		{"a charge with a deadline", 3, false, limiter.FailClosed(), false, 1, 0},
		{"a look", 0, false, limiter.FailClosed(), false, 0, 0},
		{"let pass while the store was down", 3, true, limiter.FailOpen(), false, 0, 0},
		{"charged by the fallback", 3, true, nil, false, 0, 1},
		{"charged by the store, with a fallback", 3, false, nil, false, 1, 0},
		{"the handler panicked", 3, false, limiter.FailClosed(), true, 0, 0},
		{"a refusal in a dry run", 8, false, limiter.FailClosed(), false, 0, 0},
	} {
		var refunds [2][]string // cost, error of the context, and its deadline
		fails := func(i int) func(ctx context.Context, op limiter.Op, n int) error {
			return func(ctx context.Context, op limiter.Op, n int) error {
				if op.Kind == limiter.OpRefund {
					deadline, _ := ctx.Deadline()
					refunds[i] = append(refunds[i], fmt.Sprint(op.Cost, ctx.Err(), deadline))
				} else if i == 1 || n == 1 || !c.down {
					return nil
				}
				return limiter.ErrNotApplied
			}
		}
		store, fallback := newFakeStore(), newFakeStore()
		store.fails, fallback.fails = fails(0), fails(1)
		if c.opt == nil {
			c.opt = limiter.FailLocal(fallback)
		}
		l := newOn(t, store, newClock(), "login", limiter.PerHour(10), c.opt)
		must(t, testenv.ErrorOf(l.AllowN(t.Context(), "everybody", 3)))
		parent, deadline := t.Context(), time.Time{}
		if c.name == "a charge with a deadline" {
			parent, deadline = bounded, end
		}
		ctx, cancel := context.WithCancel(parent)
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
		panicOf(func() { askBy(h, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)) })
		for i, n := range []int{c.store, c.fallback} {
			if want := slices.Repeat([]string{fmt.Sprint(c.cost, nil, deadline)}, n); !slices.Equal(refunds[i], want) {
				t.Errorf("%s: the store (0) or the fallback (1), %d: given back %+v, want %+v", c.name, i, refunds[i], want)
			}
		}
		if want := c.store + c.fallback; len(reported) != want || want == 1 && !errors.Is(reported[0], limiter.ErrNotApplied) {
			t.Errorf("%s: OnError got %v", c.name, reported)
		}
	}
}

func TestLateRefundLiftsNothing(t *testing.T) {
	t.Parallel()
	for _, p := range []limiter.Policy{
		limiter.FixedWindow{Limit: 2, Window: 20 * time.Millisecond},
		limiter.TokenBucket{Capacity: 2, Refill: 2, Interval: 20 * time.Millisecond},
	} {
		c := newClock()
		l := newLimiter(t, c, "login", p)
		h := handler.New(l, oneKey, handler.ChargeFailures())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			// While this one is at work, its window ends, and others use the next one up.
			<-time.After(30 * time.Millisecond)
			c.add(30 * time.Millisecond)
			if res, err := l.AllowN(r.Context(), "everybody", 2); err != nil || !res.Allowed {
				t.Errorf("AllowN = %+v, %v", res, err)
			}
			handler.Succeeded(r.Context())
		}))
		ask(h)
		testenv.Equal(t, left(t, []handler.Rule{{Limiter: l}}), []int64{0}, p, "has left")
	}
}

func TestRefundAcrossTheEdgeOfAWindow(t *testing.T) {
	t.Parallel()
	const limit = 5
	for _, p := range []limiter.FixedWindow{
		{Limit: limit, Window: time.Minute},
		{Limit: limit, Window: time.Minute, CountRejected: true},
	} {
		for _, crosses := range []string{"while the handler runs", "while the refund is under way"} {
			c := newClock()
			failed := 0 // logins that passed the limiter
			var login http.Handler
			nextWindow := func() {
				c.add(time.Minute)
				for range limit {
					askBy(login, httptest.NewRequest(http.MethodPost, "/wrong", http.NoBody))
				}
			}
			store := newFakeStore()
			store.fails = func(_ context.Context, op limiter.Op, _ int) error {
				if op.Kind == limiter.OpRefund && crosses == "while the refund is under way" {
					nextWindow()
				}
				return nil
			}
			l := newOn(t, store, c, "login", p)
			login = handler.New(l, oneKey, handler.ChargeFailures())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wrong" {
					failed++
					return
				}
				if crosses == "while the handler runs" {
					nextWindow()
				}
				handler.Succeeded(r.Context())
			}))
			askBy(login, httptest.NewRequest(http.MethodPost, "/right", http.NoBody))
			for range limit {
				askBy(login, httptest.NewRequest(http.MethodPost, "/wrong", http.NoBody))
			}
			testenv.Equal(t, failed, limit, "failed logins that pass in one window, CountRejected:", p.CountRejected, "a success crosses the edge", crosses)
		}
	}
}

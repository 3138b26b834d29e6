package handler_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

func TestLegacyHeadersOfRules(t *testing.T) {
	t.Parallel()
	c := newClock()
	rules := burstAndDay(t, memory.New(), c, 100)
	rules[0].Cost, rules[1].Cost = costOf("burst"), costOf("day")
	h := handler.NewAll(rules, handler.LegacyHeaders(), handler.ExposeHeaders())(&nextHandler{})
	for _, call := range []struct{ cost, resource, limit, remaining string }{
		{"burst=1&day=1", "burst", "3", "2"},
		{"burst=1&day=80", "day", "100", "19"},
		{"burst=1&day=20", "day", "100", "19"}, // refused by day, though burst has less
		{"burst=3&day=20", "day", "100", "19"}, // refused by both; day can pass last
		{"burst=0&day=1", "day", "100", "18"},
		{"burst=0&day=0", "burst", "3", "1"},
	} {
		resp := askBy(h, httptest.NewRequest(http.MethodGet, "/?"+call.cost, http.NoBody))
		wantHeaders(t, resp.header, map[string]string{
			"X-RateLimit-Resource": call.resource, "X-RateLimit-Limit": call.limit, "X-RateLimit-Remaining": call.remaining,
			"Access-Control-Expose-Headers": "RateLimit-Policy, RateLimit, Retry-After, " +
				"X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Used, X-RateLimit-Reset, X-RateLimit-Resource",
		})
	}
}

func TestDenyCacheOfRules(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newSharedStore()
	rules := burstAndDay(t, store, c, 2, limiter.WithDenyCache(16, time.Minute))
	h := handler.NewAll(rules, handler.LegacyHeaders())(&nextHandler{})
	for range 3 {
		ask(h)
	}
	store.takes = errors.New("the cache decides")
	resp := ask(h)
	if got := violated(wantStatus(t, resp, http.StatusTooManyRequests)); !slices.Equal(got, []string{"day"}) {
		t.Errorf("violated-policies %q, want day", got)
	}
	wantHeaders(t, resp.header, map[string]string{
		"RateLimit-Policy": `"burst";q=3;w=6, "day";q=2;w=86400`, "RateLimit": `"day";r=0;t=43200`,
		"Retry-After": "43200", "X-RateLimit-Resource": "day",
	})
}

func TestRefundOfEachRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		cost            string
		down            bool
		opt             func(fallback limiter.Store) limiter.Option
		store, fallback []string // refunds that they get
		left            []int64
	}{
		{"charges", "burst=2&day=5", false, closed, []string{"burst 2", "day 5"}, nil, []int64{3, 9}},
		{"a rule that took nothing", "burst=0&day=5", false, closed, []string{"day 5"}, nil, []int64{3, 9}},
		{"a look", "burst=0&day=0", false, closed, nil, nil, []int64{3, 9}},
		{"let pass while the store was down", "burst=2&day=5", true, func(limiter.Store) limiter.Option { return limiter.FailOpen() }, nil, nil, []int64{3, 9}},
		{"charged by the fallback", "burst=2&day=5", true, limiter.FailLocal, nil, []string{"burst 2", "day 5"}, []int64{3, 9}},
		{"a refusal", "burst=2&day=10", false, closed, nil, nil, []int64{3, 9}},
	} {
		for _, fails := range []bool{false, true} {
			store, fallback := newSharedStore(), newSharedStore()
			if fails {
				store.refunds, fallback.refunds = limiter.ErrNotApplied, limiter.ErrNotApplied
			}
			rules := burstAndDay(t, store, newClock(), 10, c.opt(fallback))
			rules[0].Cost, rules[1].Cost = costOf("burst"), costOf("day")
			if _, err := rules[1].Limiter.Allow(t.Context(), "everybody"); err != nil {
				t.Fatal(err)
			}
			if c.down {
				store.takes = limiter.ErrNotApplied
			}
			var reported []error
			h := handler.NewAll(rules, handler.ChargeFailures(),
				handler.OnError(func(_ *http.Request, err error) { reported = append(reported, err) }),
			)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handler.Succeeded(r.Context()) }))
			askBy(h, httptest.NewRequest(http.MethodGet, "/?"+c.cost, http.NoBody))
			if !slices.Equal(store.refunded, c.store) || !slices.Equal(fallback.refunded, c.fallback) {
				t.Errorf("%s: refunds %q of the store and %q of the fallback, want %q and %q", c.name, store.refunded, fallback.refunded, c.store, c.fallback)
			}
			if want := len(c.store) + len(c.fallback); fails && len(reported) != want || !fails && len(reported) > 0 {
				t.Errorf("%s: OnError got %v", c.name, reported)
			}
			if got := left(t, rules); !fails && !slices.Equal(got, c.left) {
				t.Errorf("%s: %d left, want %d", c.name, got, c.left)
			}
		}
	}
}

func closed(limiter.Store) limiter.Option { return limiter.FailClosed() }

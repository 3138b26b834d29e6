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

package handler_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

// byPlan chooses a policy by the key.
func byPlan(plans map[string]limiter.Policy) limiter.Option {
	return limiter.WithPolicyFor(func(_ context.Context, key string) (limiter.Policy, error) { return plans[key], nil })
}

func TestFieldsOfThePolicyThatDecided(t *testing.T) {
	t.Parallel()
	c, store := newClock(), memory.New()
	api := newOn(t, store, c, "api", limiter.TokenBucket{Capacity: 2, Refill: 1, Interval: time.Second},
		byPlan(map[string]limiter.Policy{"gold": limiter.TokenBucket{Capacity: 100, Refill: 1, Interval: 10 * time.Second}}))
	day := newOn(t, store, c, "day", limiter.FixedWindow{Limit: 5, Window: 24 * time.Hour},
		byPlan(map[string]limiter.Policy{"silver": limiter.FixedWindow{Limit: 1, Window: time.Hour}}))
	plan := handler.Header("X-Plan")
	one := handler.New(api, plan, handler.LegacyHeaders())(&nextHandler{})
	both := handler.NewAll([]handler.Rule{{Limiter: api, Key: plan}, {Limiter: day, Key: plan}}, handler.LegacyHeaders())(&nextHandler{})
	for _, call := range []struct {
		h                              http.Handler
		plan                           string
		status                         int
		policy, quota, retry, resource string
		limit                          string
	}{
		{one, "free", http.StatusTeapot, `"api";q=2;w=2`, `"api";r=1;t=1`, "", "api", "2"},
		{one, "gold", http.StatusTeapot, `"api";q=100;w=1000`, `"api";r=99;t=10`, "", "api", "100"},
		{both, "free", http.StatusTeapot, `"api";q=2;w=2, "day";q=5;w=86400`, `"api";r=0;t=1, "day";r=4;t=43200`, "", "api", "2"},
		{both, "free", http.StatusTooManyRequests, `"api";q=2;w=2, "day";q=5;w=86400`, `"api";r=0;t=1, "day";r=4;t=43200`, "1", "api", "2"},
		{both, "gold", http.StatusTeapot, `"api";q=100;w=1000, "day";q=5;w=86400`, `"api";r=98;t=10, "day";r=4;t=43200`, "", "day", "5"},
		{both, "silver", http.StatusTeapot, `"api";q=2;w=2, "day";q=1;w=3600`, `"api";r=1;t=1, "day";r=0;t=3600`, "", "day", "1"},
		{both, "silver", http.StatusTooManyRequests, `"api";q=2;w=2, "day";q=1;w=3600`, `"api";r=1;t=1, "day";r=0;t=3600`, "3600", "day", "1"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("X-Plan", call.plan)
		resp := askBy(call.h, r)
		wantStatus(t, resp, call.status)
		wantHeaders(t, resp.header, map[string]string{
			"RateLimit-Policy": call.policy, "RateLimit": call.quota, "Retry-After": call.retry,
			"X-RateLimit-Resource": call.resource, "X-RateLimit-Limit": call.limit,
		})
	}
}

// A client cannot compute the end of a period from its length, so there is no w.
func TestFieldsOfACalendar(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := newOn(t, memory.New(), c, "month", limiter.CalendarWindow{Limit: 1, Period: limiter.Month})
	_, end := limiter.CalendarWindow{Limit: 1, Period: limiter.Month}.Span(c.now)
	rest := fmt.Sprint(int64(end.Sub(c.now).Seconds()))
	h := handler.New(l, oneKey, handler.LegacyHeaders())(&nextHandler{})
	for i, retry := range []string{"", rest} {
		resp := ask(h)
		wantStatus(t, resp, []int{http.StatusTeapot, http.StatusTooManyRequests}[i])
		wantHeaders(t, resp.header, map[string]string{
			"RateLimit-Policy": `"month";q=1`, "RateLimit": `"month";r=0;t=` + rest, "Retry-After": retry, "X-RateLimit-Used": "1", "X-RateLimit-Remaining": "0",
		})
		reset, err := strconv.ParseInt(resp.header.Get("X-RateLimit-Reset"), 10, 64)
		if d := time.Duration(reset-time.Now().Unix())*time.Second - end.Sub(c.now); err != nil || d < -time.Minute || d > time.Minute {
			t.Errorf("X-RateLimit-Reset is %d, %v; want the end of the month", reset, err)
		}
	}
}

func TestFieldsOfTheOwnPolicy(t *testing.T) {
	t.Parallel()
	own := limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Second}
	res := limiter.Result{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: time.Second, Source: limiter.SourceStore}
	other := own
	other.Capacity = 20
	for policy, want := range map[limiter.Policy]string{
		nil: `"fake";q=10;w=10`, own: `"fake";q=10;w=10`, other: `"fake";q=20;w=20`, &other: `"fake";q=10;w=10`,
	} {
		res.Policy = policy
		resp := ask(handler.New(&fixedLimiter{policy: own, result: res}, oneKey)(&nextHandler{}))
		wantHeaders(t, resp.header, map[string]string{"RateLimit-Policy": want, "RateLimit": `"fake";r=9;t=1`})
	}
}

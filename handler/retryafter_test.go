package handler_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
)

func TestRetryAfterIsTheLongestWait(t *testing.T) {
	t.Parallel()
	bucket := func(capacity int64, token time.Duration) limiter.Policy {
		return limiter.TokenBucket{Capacity: capacity, Refill: 1, Interval: token}
	}
	costs := func(n int64) handler.Option { return handler.Cost(func(*http.Request) int64 { return n }) }
	type layer struct {
		policy limiter.Policy
		opts   []handler.Option
	}
	for _, c := range []struct {
		name   string
		layers []layer // from the outside
		asked  int     // requests before the one that is refused
		retry  int
	}{
		{"an outer window is used up", []layer{{policy: limiter.FixedWindow{Limit: 3, Window: time.Hour}}, {policy: bucket(2, 2*time.Second)}}, 2, 3600},
		{"an outer window has enough", []layer{{policy: limiter.FixedWindow{Limit: 4, Window: time.Hour}}, {policy: bucket(2, 2*time.Second)}}, 2, 2},
		{"an outer bucket is empty", []layer{{policy: bucket(3, time.Minute)}, {policy: bucket(2, 2*time.Second)}}, 2, 60},
		{"the inner one waits longer", []layer{{policy: bucket(3, 2*time.Second)}, {policy: bucket(2, time.Minute)}}, 2, 60},
		{"an outer bucket has less than the cost", []layer{{bucket(10, time.Minute), []handler.Option{costs(3)}}, {policy: bucket(2, 2*time.Second)}}, 2, 120},
		{"three limiters", []layer{{policy: bucket(2, 3*time.Second)}, {policy: bucket(2, time.Minute)}, {policy: bucket(1, 2*time.Second)}}, 1, 60},
		{"an outer quota is hidden", []layer{{bucket(2, time.Minute), []handler.Option{handler.HideQuota()}}, {policy: bucket(1, 2*time.Second)}}, 1, 60},
		{"an outer limiter only looks", []layer{{bucket(1, time.Minute), []handler.Option{costs(0)}}, {policy: bucket(1, 2*time.Second)}}, 1, 2},
		{"an outer limiter runs dry", []layer{{bucket(1, time.Minute), []handler.Option{handler.DryRun()}}, {policy: bucket(1, 2*time.Second)}}, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			h := http.Handler(&nextHandler{})
			for i := len(c.layers) - 1; i >= 0; i-- {
				h = handler.New(newLimiter(t, clock, "l"+strconv.Itoa(i), c.layers[i].policy), oneKey, c.layers[i].opts...)(h)
			}
			for range c.asked {
				wantStatus(t, ask(h), http.StatusTeapot)
			}
			refused := ask(h)
			wantStatus(t, refused, http.StatusTooManyRequests)
			wantHeaders(t, refused.header, map[string]string{"Retry-After": strconv.Itoa(c.retry)})
			clock.add(time.Duration(c.retry) * time.Second)
			wantStatus(t, ask(h), http.StatusTeapot)
		})
	}
}

func TestRetryAfterWithoutADecision(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outer handler.Limiter
		opt   handler.Option
		want  string
	}{
		{newLimiter(t, newClock(), "outer", limiter.PerHour(1)), handler.HideQuota(), "3600"},
		{newLimiter(t, newClock(), "outer", limiter.PerHour(2)), handler.HideQuota(), "1"},
		{fails(limiter.ErrNotApplied), handler.FailOpen(), "1"},
		{&fixedLimiter{result: limiter.Result{Allowed: true, Source: limiter.SourcePolicy}}, handler.HideQuota(), "1"},
	} {
		resp := ask(handler.New(c.outer, oneKey, c.opt)(handler.New(fails(limiter.ErrNotApplied), oneKey)(&nextHandler{})))
		wantStatus(t, resp, http.StatusServiceUnavailable)
		wantHeaders(t, resp.header, map[string]string{"Retry-After": c.want})
	}
}

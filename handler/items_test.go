package handler_test

import (
	"context"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
)

func TestFieldItemsAreThoseOfTheMiddleware(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]limiter.Policy{
		"TokenBucket": limiter.TokenBucket{Capacity: 2, Refill: 1, Interval: 1500 * time.Millisecond},
		"FixedWindow": limiter.FixedWindow{Limit: 2, Window: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLimiter(t, newClock(), "api:v1", p)
			for range 3 { // the third is refused
				var items [2]string
				resp := ask(handler.New(itemsOf{l, &items}, oneKey)(&nextHandler{}))
				wantHeaders(t, resp.header, map[string]string{"RateLimit-Policy": items[0], "RateLimit": items[1]})
			}
		})
	}
}

// itemsOf notes the items of each decision.
type itemsOf struct {
	*limiter.Limiter
	items *[2]string
}

func (l itemsOf) AllowN(ctx context.Context, key string, n int64) (limiter.Result, error) {
	res, err := l.Limiter.AllowN(ctx, key, n)
	l.items[0], l.items[1] = handler.FieldItems(l, res)
	return res, err
}

func TestFieldItemsHaveNoQuotaThatNobodyKnows(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, newClock(), "api", limiter.PerSecond(10))
	for name, res := range map[string]limiter.Result{
		"NotAsked":      {},
		"FailurePolicy": {Allowed: true, Source: limiter.SourcePolicy},
	} {
		if policy, quota := handler.FieldItems(l, res); policy != `"api";q=10;w=1` || quota != "" {
			t.Errorf("%s: %q and %q, want the policy alone", name, policy, quota)
		}
	}
}

func TestFieldItemsTellThePolicyThatDecided(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, newClock(), "api", limiter.PerSecond(10))
	res := limiter.Result{Allowed: true, Limit: 60, Remaining: 60, Source: limiter.SourceStore, Policy: limiter.PerMinute(60)}
	if policy, quota := handler.FieldItems(l, res); policy != `"api";q=60;w=60` || quota != `"api";r=60` {
		t.Errorf("%q and %q", policy, quota)
	}
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]string{-1: "1", 0: "1", 1: "1", time.Second: "1", time.Second + 1: "2"} {
		if got := handler.RetryAfter(wait); got != want {
			t.Errorf("RetryAfter(%v) = %s, want %s", wait, got, want)
		}
	}
}

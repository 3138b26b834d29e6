package handler_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
)

func TestExistingFieldsAreJoined(t *testing.T) {
	t.Parallel()
	h := handler.New(newLimiter(t, newClock(), "l", limiter.PerSecond(2)), oneKey)(&nextHandler{})
	w := httptest.NewRecorder()
	w.Header().Add("RateLimit", `"a";r=1`)
	w.Header().Add("RateLimit", `"b";r=2`)
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	wantHeaders(t, w.Header(), map[string]string{"RateLimit": `"a";r=1, "b";r=2, "l";r=1;t=1`, "RateLimit-Policy": `"l";q=2;w=1`})
}

func TestHeadersAreIndependent(t *testing.T) {
	t.Parallel()
	var policies []string
	h := handler.New(newLimiter(t, newClock(), "l", limiter.PerSecond(9)), oneKey)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		policies = append(policies, w.Header().Get("RateLimit-Policy"))
		w.Header()["Ratelimit-Policy"][0] = "spoiled"
		w.Header().Add("RateLimit-Policy", "more")
	}))
	for _, want := range []string{`"l";r=8;t=1`, `"l";r=7;t=1`} {
		wantHeaders(t, ask(h).header, map[string]string{"RateLimit": want})
	}
	if want := []string{`"l";q=9;w=1`, `"l";q=9;w=1`}; !slices.Equal(policies, want) {
		t.Errorf("RateLimit-Policy: %q, want %q", policies, want)
	}
}

func TestFieldsOfAPolicyAndItsState(t *testing.T) {
	t.Parallel()
	window := limiter.FixedWindow{Limit: 100, Window: time.Minute}
	bucket := limiter.TokenBucket{Capacity: 10, Refill: 3, Interval: 10 * time.Second} // a token in 3.33 s
	for _, c := range []struct {
		name   string
		policy limiter.Policy
		result limiter.Result
		fields map[string]string
	}{
		{"an unused window", window, limiter.Result{Allowed: true, Limit: 100, Remaining: 100}, map[string]string{
			"RateLimit-Policy": `"fake";q=100;w=60`, "RateLimit": `"fake";r=100`,
		}},
		{"a window that ends in a nanosecond", window, limiter.Result{Allowed: true, Limit: 100, Remaining: 1, ResetAfter: 1}, map[string]string{
			"RateLimit": `"fake";r=1;t=1`,
		}},
		{"a window used up", window, limiter.Result{Limit: 100, ResetAfter: 2 * time.Minute, RetryAfter: 59_000_000_001}, map[string]string{
			"RateLimit": `"fake";r=0;t=60`, "Retry-After": "60", // t is never beyond Retry-After
		}},
		{"a window shorter than a second", limiter.FixedWindow{Limit: 5, Window: 10 * time.Millisecond}, limiter.Result{Allowed: true, Limit: 5}, map[string]string{
			"RateLimit-Policy": `"fake";q=5;w=1`, "RateLimit": `"fake";r=0;t=1`, // never 0
		}},
		{"a full bucket", bucket, limiter.Result{Allowed: true, Limit: 10, Remaining: 10}, map[string]string{
			"RateLimit-Policy": `"fake";q=10;w=34`, "RateLimit": `"fake";r=10`, // 10 tokens in 33.3 s
		}},
		{"a bucket that gains its next token in 0.33 s", bucket, limiter.Result{Allowed: true, Limit: 10, Remaining: 8, ResetAfter: 3_666_666_667}, map[string]string{
			"RateLimit": `"fake";r=8;t=1`,
		}},
		{"a refusal of a cost of 5", bucket, limiter.Result{Limit: 10, Remaining: 2, ResetAfter: 8 * 3_333_333_334, RetryAfter: 3 * 3_333_333_334}, map[string]string{
			"RateLimit": `"fake";r=2;t=4`, "Retry-After": "11",
		}},
		{"a refusal that lost a race", bucket, limiter.Result{Limit: 10, Remaining: 2, ResetAfter: 8 * 3_333_333_334, RetryAfter: time.Microsecond}, map[string]string{
			"RateLimit": `"fake";r=2;t=1`, "Retry-After": "1",
		}},
		{"a sliding window", limiter.SlidingWindow{Limit: 5, Window: time.Hour}, limiter.Result{Allowed: true, Limit: 5, Remaining: 3, Used: 2, ResetAfter: 3800 * time.Second}, map[string]string{
			"RateLimit-Policy": `"fake";q=5;w=3600`, "RateLimit": `"fake";r=3;t=3800`,
		}},
		{"more than an Integer can say", limiter.FixedWindow{Limit: 1 << 60, Window: time.Hour}, limiter.Result{Allowed: true, Limit: 1 << 60, Remaining: 1<<60 - 1, ResetAfter: time.Hour}, map[string]string{
			"RateLimit-Policy": `"fake";q=999999999999999;w=3600`, "RateLimit": `"fake";r=999999999999999;t=3600`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.result.Source = limiter.SourceStore
			resp := ask(handler.New(&fixedLimiter{policy: c.policy, result: c.result}, oneKey)(&nextHandler{}))
			wantHeaders(t, resp.header, c.fields)
		})
	}
}

func TestLegacyHeaders(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name                   string
		policy                 limiter.Policy
		result                 limiter.Result
		limit, remaining, used string
		reset                  time.Time
	}{
		{
			"a window",
			limiter.FixedWindow{Limit: 60, Window: time.Hour},
			limiter.Result{Allowed: true, Limit: 60, Remaining: 50, Used: 10, ResetAfter: time.Until(now.Truncate(time.Hour).Add(time.Hour))},
			"60", "50", "10", now.Truncate(time.Hour).Add(time.Hour),
		},
		{
			"a bucket", limiter.PerMinute(60),
			limiter.Result{Limit: 60, Remaining: 0, ResetAfter: time.Minute, RetryAfter: time.Second},
			"60", "0", "60", now.Add(time.Minute),
		},
	} {
		c.result.Source = limiter.SourceStore
		resp := ask(handler.New(&fixedLimiter{policy: c.policy, result: c.result}, oneKey, handler.LegacyHeaders())(&nextHandler{}))
		wantHeaders(t, resp.header, map[string]string{
			"X-RateLimit-Limit": c.limit, "X-RateLimit-Remaining": c.remaining, "X-RateLimit-Used": c.used, "X-RateLimit-Resource": "fake",
		})
		reset, err := strconv.ParseInt(resp.header.Get("X-RateLimit-Reset"), 10, 64)
		if late := time.Unix(reset, 0).Sub(c.reset); err != nil || late < 0 || late > time.Minute {
			t.Errorf("%s: X-RateLimit-Reset is %v, want %v", c.name, time.Unix(reset, 0), c.reset)
		}
	}
}

func TestLegacyHeadersOfTheTightestLimit(t *testing.T) {
	t.Parallel()
	c := newClock()
	tight := handler.New(newLimiter(t, c, "tight", limiter.PerDay(2)), oneKey, handler.LegacyHeaders())
	wide := handler.New(newLimiter(t, c, "wide", limiter.PerDay(100)), oneKey, handler.LegacyHeaders())
	for i, h := range []http.Handler{tight(wide(&nextHandler{})), wide(tight(&nextHandler{})), wide(tight(&nextHandler{}))} {
		resp := ask(h)
		want := []string{"1", "0", "0"}[i]
		wantHeaders(t, resp.header, map[string]string{
			"X-RateLimit-Resource": "tight", "X-RateLimit-Remaining": want, "X-RateLimit-Limit": "2",
		})
	}
}

func TestExposeHeaders(t *testing.T) {
	t.Parallel()
	c := newClock()
	expose := func(name string, opts ...handler.Option) func(http.Handler) http.Handler {
		return handler.New(newLimiter(t, c, name, limiter.PerSecond(1)), oneKey, append(opts, handler.ExposeHeaders())...)
	}
	resp := ask(expose("c", handler.LegacyHeaders())(&nextHandler{}))
	wantHeaders(t, resp.header, map[string]string{
		"Access-Control-Expose-Headers": "RateLimit-Policy, RateLimit, Retry-After, " +
			"X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Used, X-RateLimit-Reset, X-RateLimit-Resource",
	})
	for _, resp := range []reply{
		ask(expose("a")(expose("b")(&nextHandler{}))), // said once
		ask(handler.New(fails(limiter.ErrNotApplied), oneKey, handler.ExposeHeaders())(&nextHandler{})),
		ask(handler.New(fails(nil), handler.Route(), handler.ExposeHeaders())(&nextHandler{})),
	} {
		wantHeaders(t, resp.header, map[string]string{"Access-Control-Expose-Headers": "RateLimit-Policy, RateLimit, Retry-After"})
	}
	w := httptest.NewRecorder()
	w.Header().Set("Access-Control-Expose-Headers", "ETag")
	expose("d")(&nextHandler{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if lines := w.Header().Values("Access-Control-Expose-Headers"); len(lines) != 2 || lines[0] != "ETag" {
		t.Errorf("Access-Control-Expose-Headers: %q, want what the application exposes kept", lines)
	}
}

// contended is a limiter whose every decision is followed by somebody else's on the same key.
type contended struct{ *limiter.Limiter }

func (c contended) AllowN(ctx context.Context, key string, n int64) (limiter.Result, error) {
	res, err := c.Limiter.AllowN(ctx, key, n)
	if err == nil {
		_, err = c.Limiter.AllowN(ctx, key, 1)
	}
	return res, err
}

func TestHeadersAreThoseOfTheDecision(t *testing.T) {
	t.Parallel()
	for _, p := range []limiter.Policy{
		limiter.TokenBucket{Capacity: 4, Refill: 1, Interval: time.Minute},
		limiter.FixedWindow{Limit: 4, Window: time.Minute},
	} {
		h := handler.New(contended{newLimiter(t, newClock(), "l", p)}, oneKey, handler.LegacyHeaders())(&nextHandler{})
		for _, left := range []string{"3", "1", "0"} {
			got := ask(h).header
			if r := got.Get("RateLimit"); !strings.HasPrefix(r, `"l";r=`+left+";t=") {
				t.Errorf("%T: RateLimit is %s, want %s left", p, r, left)
			}
			wantHeaders(t, got, map[string]string{"X-RateLimit-Remaining": left})
		}
	}
}

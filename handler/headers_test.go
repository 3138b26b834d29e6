package handler_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

func TestHeadersAreIndependent(t *testing.T) {
	t.Parallel()
	var policies []string
	h := handler.New(newLimiter(t, newClock(), "l", limiter.PerSecond(9)), oneKey)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		policies = append(policies, w.Header().Get("RateLimit-Policy"))
		w.Header()["Ratelimit-Policy"][0] = "spoiled"
		w.Header().Add("RateLimit-Policy", "more")
	}))
	for _, want := range []string{`"a";r=1, "b";r=2, "l";r=8;t=1`, `"a";r=1, "b";r=2, "l";r=7;t=1`} {
		w := httptest.NewRecorder()
		w.Header()["Ratelimit"] = []string{`"a";r=1`, `"b";r=2`}
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		wantHeaders(t, w.Header(), map[string]string{"RateLimit": want})
	}
	testenv.Equal(t, policies, []string{`"l";q=9;w=1`, `"l";q=9;w=1`}, "RateLimit-Policy")
}

func TestFieldItems(t *testing.T) {
	t.Parallel()
	window, wide := limiter.FixedWindow{Limit: 100, Window: time.Minute}, limiter.FixedWindow{Limit: 1 << 60, Window: time.Hour}
	short := limiter.FixedWindow{Limit: 5, Window: 10 * time.Millisecond}
	bucket := limiter.TokenBucket{Capacity: 10, Refill: 3, Interval: 10 * time.Second} // a token in 3.33 s
	sliding, calendar := limiter.SlidingWindow{Limit: 5, Window: time.Hour}, limiter.CalendarWindow{Limit: 1, Period: limiter.Month}
	const token, month = 3_333_333_334 * time.Nanosecond, 90 * time.Hour
	// A client cannot compute the end of a month from its length, so there is no w.
	const windowField, bucketField, slidingField, calendarField = `"fake";q=100;w=60`, `"fake";q=10;w=34`, `"fake";q=5;w=3600`, `"fake";q=1`
	const wideField = `"fake";q=999999999999999;w=3600`
	passed := func(limit, left int64, reset time.Duration) limiter.Result {
		return limiter.Result{Allowed: true, Limit: limit, Remaining: left, Used: limit - left, ResetAfter: reset}
	}
	refused := func(limit, left int64, reset, retry time.Duration) limiter.Result {
		return limiter.Result{Limit: limit, Remaining: left, Used: limit - left, ResetAfter: reset, RetryAfter: retry}
	}
	decidedBy := func(p limiter.Policy, res limiter.Result) limiter.Result {
		res.Policy = p
		return res
	}
	inFlight := limiter.InFlight{Limit: 1, Hold: time.Second}
	for _, c := range []struct {
		name                 string
		policy               limiter.Policy
		result               limiter.Result
		fields, quota, retry string
	}{
		{"an unused window", window, passed(100, 100, 0), windowField, `"fake";r=100`, ""},
		{"a window that ends in a nanosecond", window, passed(100, 1, 1), windowField, `"fake";r=1;t=1`, ""},
		{"t is never beyond Retry-After", window, refused(100, 0, 2*time.Minute, 59_000_000_001), windowField, `"fake";r=0;t=60`, "60"},
		{"a window shorter than a second", short, passed(5, 0, 0), `"fake";q=5;w=1`, `"fake";r=0;t=1`, ""},
		{"a full bucket", bucket, passed(10, 10, 0), bucketField, `"fake";r=10`, ""}, // 10 tokens in 33.3 s
		{"the next token in 0.33 s", bucket, passed(10, 8, 3_666_666_667), bucketField, `"fake";r=8;t=1`, ""},
		{"a refusal of a cost of 5", bucket, refused(10, 2, 8*token, 3*token), bucketField, `"fake";r=2;t=4`, "11"},
		{"a refusal that lost a race", bucket, refused(10, 2, 8*token, time.Microsecond), bucketField, `"fake";r=2;t=1`, "1"},
		{"a refusal without a wait", bucket, refused(10, 0, 0, 0), bucketField, `"fake";r=0;t=1`, "1"},
		{"a sliding window", sliding, passed(5, 3, 3800*time.Second), slidingField, `"fake";r=3`, ""},
		{"a sliding window used up", sliding, refused(5, 0, 3800*time.Second, 45*time.Second), slidingField, `"fake";r=0;t=45`, "45"},
		{"a calendar used up", calendar, refused(1, 0, month, month), calendarField, `"fake";r=0;t=324000`, "324000"},
		{"a policy that decided", bucket, decidedBy(window, passed(100, 99, time.Minute)), windowField, `"fake";r=99;t=60`, ""},
		{"the own policy decided", bucket, decidedBy(bucket, passed(10, 10, 0)), bucketField, `"fake";r=10`, ""},
		{"what is no policy decided", bucket, decidedBy(&window, passed(10, 10, 0)), bucketField, `"fake";r=10`, ""},
		{"a policy without fields decided", bucket, decidedBy(inFlight, passed(10, 10, 0)), bucketField, `"fake";r=10`, ""},
		{"more than an Integer can say", wide, passed(1<<60, 1<<60-1, time.Hour), wideField, `"fake";r=999999999999999;t=3600`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.result.Source = limiter.SourceStore
			l := &fixedLimiter{policy: c.policy, result: c.result}
			wantHeaders(t, ask(handler.New(l, oneKey)(&nextHandler{})).header, map[string]string{
				"RateLimit-Policy": c.fields, "RateLimit": c.quota, "Retry-After": c.retry,
				"X-RateLimit-Limit": "", "Access-Control-Expose-Headers": "",
			})
			wantItems(t, l, c.result, c.fields, c.quota)
		})
	}
	byPolicy := limiter.Result{Allowed: true, Source: limiter.SourcePolicy}
	wantItems(t, &fixedLimiter{}, limiter.Result{}, `"fake";q=10;w=1`, "") // the limiter was not asked
	wantItems(t, &fixedLimiter{}, byPolicy, `"fake";q=10;w=1`, "")
	wantItems(t, &fixedLimiter{}, passed(1, 1, 0), `"fake";q=10;w=1`, `"fake";r=1`) // a limiter that sets no Source
	wantItems(t, &fixedLimiter{name: "a-Z_0.9:/x"}, passed(9, 9, 0), `"a-Z_0.9:/x";q=10;w=1`, `"a-Z_0.9:/x";r=9`)
	wantItems(t, &fixedLimiter{name: `say "\n"`}, passed(9, 9, 0), `"say \"\\n\"";q=10;w=1`, `"say \"\\n\"";r=9`)
	wantPanic(t, "no policy", "limiter.New", func() { handler.FieldItems(&noPolicy{}, byPolicy) })
}

// wantItems checks the items of a decision.
func wantItems(t *testing.T, l handler.Limiter, res limiter.Result, wantPolicy, wantQuota string) {
	t.Helper()
	policy, quota := handler.FieldItems(l, res)
	testenv.Equal(t, []string{policy, quota}, []string{wantPolicy, wantQuota}, "the items of", l.Name(), "for", res)
}

// wantLegacy checks the headers of a decision that was made now.
func wantLegacy(t *testing.T, p limiter.Policy, res limiter.Result, used string, reset time.Time) {
	t.Helper()
	res.Source = limiter.SourceStore
	resp := ask(handler.New(&fixedLimiter{policy: p, result: res}, oneKey, handler.LegacyHeaders())(&nextHandler{}))
	wantHeaders(t, resp.header, map[string]string{
		"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": strconv.FormatInt(res.Remaining, 10), "X-RateLimit-Used": used,
		"X-RateLimit-Reset": strconv.FormatInt(reset.Unix(), 10), "X-RateLimit-Resource": "fake",
	})
	if t.Failed() {
		t.Fatalf("of %+v, decided at %v", res, time.Now())
	}
}

func TestResetOfAWindow(t *testing.T) {
	t.Parallel()
	window := limiter.FixedWindow{Limit: 60, Window: 15 * time.Minute}
	day := limiter.CalendarWindow{Limit: 60, Period: limiter.Day, Location: time.FixedZone("quarter", -15*60)}
	for _, skew := range []time.Duration{-4 * time.Minute, -time.Second, -time.Nanosecond, 0, 1, 400 * time.Millisecond, 4 * time.Minute} {
		for _, left := range []time.Duration{1, time.Second, 9 * time.Minute, 10 * time.Minute} {
			t.Run(fmt.Sprint(left, " left, skew ", skew), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					end := time.Now().Add(15 * time.Minute) // the bubble begins at midnight
					<-time.After(15*time.Minute - left + skew)
					for _, p := range []limiter.Policy{window, day} {
						wantLegacy(t, p, limiter.Result{Allowed: true, Limit: 60, Remaining: 50, Used: 10, ResetAfter: left}, "10", end)
					}
				})
			})
		}
	}
}

func TestResetOfABucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Second)
		now := time.Now()
		for after, seconds := range map[time.Duration]int64{0: 0, 1: 1, time.Second: 1, time.Second + 1: 2} {
			reset := now.Add(time.Duration(seconds) * time.Second)
			wantLegacy(t, perMinute, limiter.Result{Limit: 60, Remaining: 20, ResetAfter: after}, "40", reset)
		}
		window := limiter.FixedWindow{Limit: 60, Window: time.Minute}
		wantLegacy(t, window, limiter.Result{Allowed: true, Limit: 60, Remaining: 60}, "0", now) // unused
		wantLegacy(t, window, limiter.Result{Limit: 60, Used: 70}, "70", now)
	})
}

func TestLegacyHeadersOfTheTightestLimit(t *testing.T) {
	t.Parallel()
	c := newClock()
	tight := handler.New(newLimiter(t, c, "tight", limiter.PerDay(2)), oneKey, handler.LegacyHeaders())
	wide := handler.New(newLimiter(t, c, "wide", limiter.PerDay(3)), oneKey, handler.LegacyHeaders())
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
	testenv.Equal(t, w.Header()["Access-Control-Expose-Headers"], []string{"ETag", "RateLimit-Policy, RateLimit, Retry-After"}, "what the application exposes is kept")
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
		{&fixedLimiter{policy: limiter.PerHour(1), result: limiter.Result{Allowed: true, Source: limiter.SourcePolicy}}, handler.HideQuota(), "1"},
	} {
		resp := ask(handler.New(c.outer, oneKey, c.opt)(handler.New(fails(limiter.ErrNotApplied), oneKey)(&nextHandler{})))
		wantStatus(t, resp, http.StatusServiceUnavailable)
		wantHeaders(t, resp.header, map[string]string{"Retry-After": c.want})
	}
}

package handler_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

func TestRefusalOption(t *testing.T) {
	t.Parallel()
	c := newClock()
	var told []time.Duration
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res, ok := handler.ResultFromContext(r.Context())
		if !ok || res.Allowed {
			t.Errorf("ResultFromContext = %+v, %v; want the refusal", res, ok)
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "come back in %v", res.RetryAfter)
	})
	h := handler.New(newLimiter(t, c, "l", limiter.PerMinute(1)), oneKey, handler.Refusal(page),
		handler.OnRefusal(func(r *http.Request, res limiter.Result) {
			if seen, ok := handler.ResultFromContext(r.Context()); !ok || seen != res {
				t.Errorf("the request of the hook has %+v, the hook %+v", seen, res)
			}
			told = append(told, res.RetryAfter)
		}))(&nextHandler{})
	wantStatus(t, ask(h), http.StatusTeapot)
	resp := ask(h)
	testenv.Equal(t, []any{resp.status, string(resp.body)}, []any{http.StatusForbidden, "come back in 1m0s"}, "the page")
	wantHeaders(t, resp.header, map[string]string{"Retry-After": "60", "Cache-Control": "no-store", "RateLimit": `"l";r=0;t=60`})
	testenv.Equal(t, told, []time.Duration{time.Minute}, "the waits that OnRefusal got")
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	c := newClock()
	var refused, seen int
	var failed []error
	options := []handler.Option{
		handler.DryRun(), handler.LegacyHeaders(), handler.ExposeHeaders(),
		handler.OnRefusal(func(*http.Request, limiter.Result) { refused++ }),
		handler.OnError(func(_ *http.Request, err error) { failed = append(failed, err) }),
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if res, ok := handler.ResultFromContext(r.Context()); ok && !res.Allowed {
			seen++
		}
		w.WriteHeader(http.StatusTeapot)
	})
	l := newLimiter(t, c, "l", limiter.PerMinute(2))
	for range 5 {
		resp := ask(handler.New(l, oneKey, options...)(next))
		wantStatus(t, resp, http.StatusTeapot)
		testenv.Equal(t, resp.header, http.Header{}, "the header")
	}
	for _, err := range []error{limiter.ErrMisconfigured, limiter.ErrExceedsCapacity} {
		wantStatus(t, ask(handler.New(fails(err), oneKey, options...)(next)), http.StatusTeapot)
	}
	wantStatus(t, ask(handler.New(l, handler.Header("X-Api-Key"), options...)(next)), http.StatusTeapot)
	if len(failed) != 3 || !errors.Is(failed[2], handler.ErrNoKey) {
		t.Errorf("OnError got %v, want three errors", failed)
	}
	// A request without a decision has none in its context.
	testenv.Equal(t, []int{refused, seen}, []int{3, 3}, "refusals that OnRefusal got, and that the context had")
}

func TestHideQuota(t *testing.T) {
	t.Parallel()
	options := []handler.Option{handler.HideQuota(), handler.LegacyHeaders(), handler.ExposeHeaders()}
	for name, h := range map[string]http.Handler{
		"one limit":      handler.New(newLimiter(t, newClock(), "day", limiter.FixedWindow{Limit: 1, Window: 24 * time.Hour}), oneKey, options...)(&nextHandler{}),
		"several limits": handler.NewAll(burstAndDay(t, memory.New(), newClock(), 1), options...)(&nextHandler{}),
	} {
		resp := ask(h)
		wantStatus(t, resp, http.StatusTeapot)
		testenv.Equal(t, resp.header, http.Header{"Access-Control-Expose-Headers": {"Retry-After"}}, name, "the header")
		resp = ask(h)
		problem := wantStatus(t, resp, http.StatusTooManyRequests)
		wantHeaders(t, resp.header, map[string]string{
			"Retry-After": "43200", "RateLimit": "", "RateLimit-Policy": "", "X-RateLimit-Remaining": "",
			"Access-Control-Expose-Headers": "Retry-After",
		})
		if strings.Contains(fmt.Sprint(problem), "day") {
			t.Errorf("%s: the problem names the policy: %v", name, problem)
		}
	}
}

func TestWrongProgramsPanic(t *testing.T) {
	t.Parallel()
	l, c := newLimiter(t, newClock(), "l", limiter.PerSecond(1)), oneAtATime(t, memory.New())
	ten := netip.MustParsePrefix("10.0.0.0/8")
	const forRates = ", which is for rate limits; leave it out"
	for name, test := range map[string]struct {
		f      func()
		advice string
	}{
		"no limiter":                    {func() { handler.New(nil, oneKey) }, "limiter.New"},
		"a nil limiter":                 {func() { handler.New((*limiter.Limiter)(nil), oneKey) }, "limiter.New"},
		"no key":                        {func() { handler.New(l, nil) }, "handler.ClientIP()"},
		"a nil option":                  {func() { handler.New(l, oneKey, nil) }, "leave it out"},
		"no next handler":               {func() { handler.New(l, oneKey)(nil) }, "pass one"},
		"no policy":                     {func() { handler.New(&noPolicy{}, oneKey) }, "limiter.New"},
		"a name no header":              {func() { handler.New(&fixedLimiter{name: "naïve"}, oneKey) }, "printable ASCII"},
		"no refunds":                    {func() { handler.New(fails(nil), oneKey, handler.ChargeFailures()) }, "RefundOf, which *handler_test.fixedLimiter does not have"},
		"an old refund":                 {func() { handler.New(onlyRefund{fails(nil)}, oneKey, handler.ChargeFailures()) }, "RefundOf"},
		"Cost":                          {func() { handler.Cost(nil) }, "leave the option out"},
		"Skip":                          {func() { handler.Skip(nil) }, "leave the option out"},
		"Refusal":                       {func() { handler.Refusal(nil) }, "leave the option out"},
		"OnRefusal":                     {func() { handler.OnRefusal(nil) }, "leave the option out"},
		"OnError":                       {func() { handler.OnError(nil) }, "leave the option out"},
		"Header":                        {func() { handler.Header("") }, "X-Api-Key"},
		"Header of Host":                {func() { handler.Header("host") }, "r.Host"},
		"Header of XFF":                 {func() { handler.Header("x-forwarded-for") }, "TrustedHops"},
		"Header Forwarded":              {func() { handler.Header("Forwarded") }, "TrustedHops"},
		"a name in two":                 {func() { handler.Header("X Api Key") }, "X-Api-Key"},
		"a name's umlaut":               {func() { handler.Header("X-Äpi-Key") }, "X-Api-Key"},
		"User":                          {func() { handler.User(nil) }, "pass a function"},
		"Join of none":                  {func() { handler.Join() }, "no keys"},
		"Join of a nil key":             {func() { handler.Join(oneKey, nil) }, "nil key"},
		"a nil option of ClientIP":      {func() { handler.ClientIP(nil) }, "leave it out"},
		"a short prefix":                {func() { handler.ClientIP(handler.IPv6Prefix(31)) }, "32 to 128"},
		"a long prefix":                 {func() { handler.ClientIP(handler.IPv6Prefix(129)) }, "32 to 128"},
		"no hops":                       {func() { handler.ClientIP(handler.TrustedHops(0)) }, "leave it out"},
		"too many hops":                 {func() { handler.ClientIP(handler.TrustedHops(17)) }, "1 to 16"},
		"no proxies":                    {func() { handler.ClientIP(handler.TrustedProxies()) }, "leave it out"},
		"a zero prefix":                 {func() { handler.ClientIP(handler.TrustedProxies(ten, netip.Prefix{})) }, "netip.MustParsePrefix"},
		"all of IPv4":                   {func() { handler.ClientIP(handler.TrustedProxies(netip.MustParsePrefix("0.0.0.0/0"))) }, "TrustedHops"},
		"all of IPv6":                   {func() { handler.ClientIP(handler.TrustedProxies(netip.MustParsePrefix("::/0"))) }, "TrustedHops"},
		"all of IPv4, mapped":           {func() { handler.ClientIP(handler.TrustedProxies(netip.MustParsePrefix("::ffff:0:0/96"))) }, "as IPv4"},
		"more than IPv4, mapped":        {func() { handler.ClientIP(handler.TrustedProxies(netip.MustParsePrefix("::ffff:1.2.3.4/90"))) }, "as IPv4"},
		"AddressHeader of no name":      {func() { handler.ClientIP(handler.AddressHeader("")) }, "X-Real-IP"},
		"Host as an address":            {func() { handler.ClientIP(handler.AddressHeader("host")) }, "X-Real-IP"},
		"X-Forwarded-For as an address": {func() { handler.ClientIP(handler.AddressHeader("x-forwarded-for")) }, "TrustedHops"},
		"Forwarded as an address":       {func() { handler.ClientIP(handler.AddressHeader("forwarded")) }, "X-Forwarded-For"},
		"proxies and hops":              {func() { handler.ClientIP(handler.TrustedProxies(ten), handler.TrustedHops(1)) }, "TrustedProxies and TrustedHops"},
		"hops and a header":             {func() { handler.ClientIP(handler.TrustedHops(1), handler.AddressHeader("X-Real-IP")) }, "TrustedHops and AddressHeader"},
		"a header and proxies":          {func() { handler.ClientIP(handler.AddressHeader("X-Real-IP"), handler.TrustedProxies(ten)) }, "AddressHeader and TrustedProxies"},
		"hops twice":                    {func() { handler.ClientIP(handler.TrustedHops(1), handler.TrustedHops(2)) }, "once"},
		"in flight, no limiter":         {func() { handler.NewConcurrency(nil, oneKey) }, "limiter.NewConcurrency"},
		"in flight, no key":             {func() { handler.NewConcurrency(c, nil) }, "handler.ClientIP()"},
		"in flight, a nil option":       {func() { handler.NewConcurrency(c, oneKey, nil) }, "leave it out"},
		"in flight, no next handler":    {func() { handler.NewConcurrency(c, oneKey)(nil) }, "pass one"},
		"in flight, Cost":               {func() { handler.NewConcurrency(c, oneKey, handler.Cost(costOf("n"))) }, "Cost" + forRates},
		"in flight, ChargeFailures":     {func() { handler.NewConcurrency(c, oneKey, handler.ChargeFailures()) }, "ChargeFailures" + forRates},
		"in flight, LegacyHeaders":      {func() { handler.NewConcurrency(c, oneKey, handler.LegacyHeaders()) }, "LegacyHeaders" + forRates},
		"in flight, ExposeHeaders":      {func() { handler.NewConcurrency(c, oneKey, handler.ExposeHeaders()) }, "ExposeHeaders" + forRates},
		"in flight, HideQuota":          {func() { handler.NewConcurrency(c, oneKey, handler.HideQuota()) }, "HideQuota" + forRates},
	} {
		wantPanic(t, name, test.advice, test.f)
	}
}

// noPolicy is a limiter that limiter.New did not make.
type noPolicy struct{ fixedLimiter }

func (*noPolicy) Policy() limiter.Policy { return nil }

// onlyRefund is a limiter that can refund, but not what a Result was charged.
type onlyRefund struct{ handler.Limiter }

func (onlyRefund) Refund(context.Context, string, int64) (bool, error) { return false, nil }

// cors is what CORS middleware does: it allows an origin, and answers preflights itself.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://app.example.com")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// preflight returns the request that a browser sends before a script's.
func preflight() *http.Request {
	r := httptest.NewRequest(http.MethodOptions, "/", http.NoBody)
	r.Header.Set("Origin", "https://app.example.com")
	r.Header.Set("Access-Control-Request-Method", http.MethodPut)
	return r
}

func TestSkipPreflight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		change  func(*http.Request)
		skipped bool
	}{
		{"a preflight", func(*http.Request) {}, true},
		{"the request itself", func(r *http.Request) { r.Method = http.MethodPut }, false},
		{"no origin", func(r *http.Request) { r.Header.Del("Origin") }, false},
		{"no method", func(r *http.Request) { r.Header.Del("Access-Control-Request-Method") }, false},
		{"an empty method", func(r *http.Request) { r.Header.Set("Access-Control-Request-Method", "") }, false},
		{"OPTIONS alone", func(r *http.Request) { clear(r.Header) }, false},
	} {
		for _, option := range []bool{true, false} {
			l, next := &fixedLimiter{result: limiter.Result{Allowed: true, Source: limiter.SourceStore}}, &nextHandler{}
			var opts []handler.Option
			if option {
				opts = append(opts, handler.SkipPreflight(), handler.Skip(func(*http.Request) bool { return false }))
			}
			r := preflight()
			c.change(r)
			resp := askBy(handler.New(l, oneKey, opts...)(next), r)
			wantStatus(t, resp, http.StatusTeapot)
			skipped, bare := len(l.asked) == 0, resp.header["Ratelimit"] == nil
			if skipped != (c.skipped && option) || bare != skipped {
				t.Errorf("%s, with the option: %v: skipped: %v, with %v", c.name, option, skipped, resp.header)
			}
		}
	}
}

// CORS middleware belongs outside of the limiter. Where a router has it inside, this
// option keeps browsers from being charged twice.
func ExampleSkipPreflight() {
	limit := handler.New(mustLimiter("api", limiter.PerMinute(1)), handler.ClientIP(), handler.SkipPreflight())
	h := limit(cors(http.HandlerFunc(search)))
	for _, r := range []*http.Request{preflight(), httptest.NewRequest(http.MethodPut, "/", http.NoBody)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(r.Method, w.Code, w.Header()["Ratelimit"])
	}
	// Output:
	// OPTIONS 204 []
	// PUT 200 ["api";r=0;t=60]
}

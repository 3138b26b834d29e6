package handler_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

func TestRefusalOption(t *testing.T) {
	t.Parallel()
	c := newClock()
	var told []limiter.Result
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
			told = append(told, res)
		}))(&nextHandler{})
	wantStatus(t, ask(h), http.StatusTeapot)
	if len(told) != 0 {
		t.Errorf("OnRefusal was told of a request that passed")
	}
	resp := ask(h)
	if resp.status != http.StatusForbidden || string(resp.body) != "come back in 1m0s" {
		t.Errorf("%d %q, want the page", resp.status, resp.body)
	}
	wantHeaders(t, resp.header, map[string]string{"Retry-After": "60", "Cache-Control": "no-store", "RateLimit": `"l";r=0;t=60`})
	if len(told) != 1 || told[0].RetryAfter != time.Minute {
		t.Errorf("OnRefusal got %+v, want one refusal of a minute", told)
	}
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
		if len(resp.header) != 0 {
			t.Errorf("the answer has headers: %v", resp.header)
		}
	}
	for _, err := range []error{limiter.ErrMisconfigured, limiter.ErrExceedsCapacity} {
		wantStatus(t, ask(handler.New(fails(err), oneKey, options...)(next)), http.StatusTeapot)
	}
	wantStatus(t, ask(handler.New(l, handler.Header("X-Api-Key"), options...)(next)), http.StatusTeapot)
	if len(failed) != 3 || !errors.Is(failed[2], handler.ErrNoKey) {
		t.Errorf("OnError got %v, want three errors", failed)
	}
	if refused != 3 || seen != 3 { // a request without a decision has none in its context
		t.Errorf("OnRefusal got %d refusals, and the context had %d; want 3 and 3", refused, seen)
	}
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
		if got, want := resp.header, (http.Header{"Access-Control-Expose-Headers": {"Retry-After"}}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: headers %v, want %v", name, got, want)
		}
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
	l := newLimiter(t, newClock(), "l", limiter.PerSecond(1))
	for name, c := range map[string]struct {
		f      func()
		advice string
	}{
		"no limiter":        {func() { handler.New(nil, oneKey) }, "limiter.New"},
		"a nil limiter":     {func() { handler.New((*limiter.Limiter)(nil), oneKey) }, "limiter.New"},
		"no key":            {func() { handler.New(l, nil) }, "handler.ClientIP()"},
		"a nil option":      {func() { handler.New(l, oneKey, nil) }, "leave it out"},
		"no next handler":   {func() { handler.New(l, oneKey)(nil) }, "pass one"},
		"no policy":         {func() { handler.New(noPolicy{}, oneKey) }, "limiter.New"},
		"a name no header":  {func() { handler.New(oddName{}, oneKey) }, "printable ASCII"},
		"no refunds":        {func() { handler.New(fails(nil), oneKey, handler.ChargeFailures()) }, "RefundOf, which *handler_test.fixedLimiter does not have"},
		"an old refund":     {func() { handler.New(onlyRefund{fails(nil)}, oneKey, handler.ChargeFailures()) }, "RefundOf"},
		"Cost":              {func() { handler.Cost(nil) }, "leave the option out"},
		"Skip":              {func() { handler.Skip(nil) }, "leave the option out"},
		"Refusal":           {func() { handler.Refusal(nil) }, "leave the option out"},
		"OnRefusal":         {func() { handler.OnRefusal(nil) }, "leave the option out"},
		"OnError":           {func() { handler.OnError(nil) }, "leave the option out"},
		"Header":            {func() { handler.Header("") }, "X-Api-Key"},
		"Header of Host":    {func() { handler.Header("host") }, "r.Host"},
		"Header of XFF":     {func() { handler.Header("x-forwarded-for") }, "TrustedHops"},
		"Header Forwarded":  {func() { handler.Header("Forwarded") }, "TrustedHops"},
		"a name in two":     {func() { handler.Header("X Api Key") }, "X-Api-Key"},
		"a name's blank":    {func() { handler.Header("X-Api-Key ") }, "X-Api-Key"},
		"a name's colon":    {func() { handler.Header("X-Api-Key:") }, "X-Api-Key"},
		"a name's umlaut":   {func() { handler.Header("X-Äpi-Key") }, "X-Api-Key"},
		"User":              {func() { handler.User(nil) }, "pass a function"},
		"Join of none":      {func() { handler.Join() }, "no keys"},
		"Join of a nil key": {func() { handler.Join(oneKey, nil) }, "nil key"},
	} {
		wantPanic(t, name, c.advice, c.f)
	}
}

type noPolicy struct{}

func (noPolicy) AllowN(context.Context, string, int64) (limiter.Result, error) {
	return limiter.Result{}, nil
}
func (noPolicy) Name() string           { return "l" }
func (noPolicy) Policy() limiter.Policy { return nil }

type oddName struct{ noPolicy }

func (oddName) Name() string           { return "naïve" }
func (oddName) Policy() limiter.Policy { return limiter.PerSecond(1) }

// onlyRefund is a limiter that can refund, but not what a Result was charged.
type onlyRefund struct{ handler.Limiter }

func (onlyRefund) Refund(context.Context, string, int64) (bool, error) { return false, nil }

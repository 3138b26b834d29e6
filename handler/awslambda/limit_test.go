package awslambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
	"github.com/sqlimit/limiter/memory"
)

// newLimiter returns a limiter of n an hour, on a clock that stands still.
func newLimiter(t testing.TB, n int64) *limiter.Limiter {
	t.Helper()
	return newNamed(t, "orders", n)
}

func newNamed(t testing.TB, name string, n int64) *limiter.Limiter {
	t.Helper()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	l, err := limiter.New(memory.New(memory.WithClock(func() time.Time { return now })), name, limiter.PerHour(n))
	must(t, err)
	return l
}

func ok(context.Context) (status int, header map[string]string, err error) {
	return http.StatusOK, map[string]string{"X-Own": "yes"}, nil
}

// limited returns a function limited in each of the ways there are: as a handler
// behind Handler, and as one that takes the event.
func limited(g *gateway, l handler.Limiter, key handler.KeyFunc, opts ...handler.Option) map[string]lambda.Handler {
	plain := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Own", "yes") })
	return map[string]lambda.Handler{
		"handler":  awslambda.Handler(handler.New(l, key, opts...)(plain), nil),
		"function": g.limit(l, key, opts...)(ok),
	}
}

func TestFunctionSeesDecisionAndEvent(t *testing.T) {
	t.Parallel()
	limit := awslambda.LimitREST(newLimiter(t, 3), handler.ClientIP())
	called := false
	f := limit(func(ctx context.Context, e events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
		called = true
		if res, ok := handler.ResultFromContext(ctx); !ok || !res.Allowed || res.Remaining != 2 {
			t.Errorf("the decision is %+v, %v", res, ok)
		}
		if got, ok := awslambda.EventFromContext[events.APIGatewayProxyRequest](ctx); !ok || !reflect.DeepEqual(got, e) {
			t.Errorf("the context's event is %+v, %v", got, ok)
		}
		if ctx.Value(traceKey{}) != "trace" {
			t.Error("the invocation's context is not the parent")
		}
		return events.APIGatewayProxyResponse{StatusCode: http.StatusOK}, nil
	})
	var event events.APIGatewayProxyRequest
	must(t, json.Unmarshal(recorded(t, "rest"), &event))
	if _, err := f(context.WithValue(t.Context(), traceKey{}, "trace"), event); err != nil || !called {
		t.Fatalf("called: %v, %v", called, err)
	}
}

type traceKey struct{}

func TestRouteOfAFunction(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]string{"rest": "/orders/{proxy+}", "httpapi": "POST /orders/{proxy+}", "functionurl": "", "alb": ""} {
		var route string
		key := func(r *http.Request) (string, error) {
			route = r.Pattern
			return "all", nil
		}
		l := newLimiter(t, 1)
		var err error
		switch event {
		case "rest":
			_, err = invoke(t, event, awslambda.LimitREST(l, key))
		case "httpapi":
			_, err = invoke(t, event, awslambda.LimitHTTPAPI(l, key))
		case "functionurl":
			_, err = invoke(t, event, awslambda.LimitFunctionURL(l, key))
		case "alb":
			_, err = invoke(t, event, awslambda.LimitALB(l, key))
		}
		if err != nil || route != want {
			t.Errorf("%s: the route is %q, %v; want %q", event, route, err, want)
		}
	}
}

// invoke passes a recorded event to a limited function that does nothing.
func invoke[E, R any](t *testing.T, event string, limit func(func(context.Context, E) (R, error)) func(context.Context, E) (R, error)) (R, error) {
	t.Helper()
	var e E
	must(t, json.Unmarshal(recorded(t, event), &e))
	return limit(func(context.Context, E) (out R, err error) { return out, nil })(t.Context(), e)
}

// A login may answer a wrong password by a redirect, back to the form.
func TestChargeFailuresOfFunctions(t *testing.T) {
	t.Parallel()
	for _, g := range gateways() {
		for _, status := range []int{http.StatusOK, http.StatusNoContent, http.StatusSeeOther, http.StatusUnauthorized, http.StatusInternalServerError, 0} {
			l := newLimiter(t, 5)
			attempt := func(succeeds bool, wantStatus int, wantLeft int64) {
				t.Helper()
				h := g.limit(l, handler.ClientIP(), handler.ChargeFailures())(func(ctx context.Context) (int, map[string]string, error) {
					if succeeds {
						handler.Succeeded(ctx)
					}
					return status, nil, nil
				})
				a := g.send(t, h, request(t, "POST", "/login", ""))
				res, err := l.Peek(t.Context(), client)
				if a.status != wantStatus || err != nil || res.Remaining != wantLeft {
					t.Errorf("%s, status %d, succeeds: %v: answered %d, %d left, %v; want %d and %d left",
						g.name, status, succeeds, a.status, res.Remaining, err, wantStatus, wantLeft)
				}
			}
			for range 10 {
				attempt(true, status, 5)
			}
			for left := range 5 {
				attempt(false, status, int64(4-left))
			}
			attempt(true, http.StatusTooManyRequests, 0)
		}
	}
}

func TestErrorOfAFunction(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	want := events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: "half"}
	f := awslambda.LimitHTTPAPI(newLimiter(t, 1), handler.ClientIP())(func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return want, failed
	})
	var event events.APIGatewayV2HTTPRequest
	must(t, json.Unmarshal(recorded(t, "httpapi"), &event))
	if got, err := f(t.Context(), event); err != failed || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v, %v", got, err, want, failed)
	}
}

// newRules returns rules of 2 and of n an hour for each client, on a clock that stands still.
func newRules(t *testing.T, n int64) []handler.Rule {
	t.Helper()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	store := memory.New(memory.WithClock(func() time.Time { return now }))
	rule := func(name string, policy limiter.Policy) handler.Rule {
		l, err := limiter.New(store, name, policy)
		must(t, err)
		return handler.Rule{Limiter: l, Key: handler.ClientIP()}
	}
	return []handler.Rule{
		rule("burst", limiter.PerHour(2)),
		rule("hour", limiter.FixedWindow{Limit: n, Window: time.Hour}),
	}
}

// limitedByAll returns a function limited by rules in each of the ways there are.
func limitedByAll(g *gateway, rules []handler.Rule, opts ...handler.Option) map[string]lambda.Handler {
	plain := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handler.Succeeded(r.Context()) })
	return map[string]lambda.Handler{
		"handler": awslambda.Handler(handler.NewAll(rules, opts...)(plain), nil),
		"function": g.limitAll(rules, opts...)(func(ctx context.Context) (int, map[string]string, error) {
			handler.Succeeded(ctx)
			return http.StatusOK, nil, nil
		}),
	}
}

func TestRulesOfEveryGateway(t *testing.T) {
	t.Parallel()
	for _, g := range gateways() {
		for _, way := range []string{"handler", "function"} {
			h := limitedByAll(&g, newRules(t, 3))[way]
			for i, want := range []struct {
				status int
				quota  string
				retry  string
			}{
				{http.StatusOK, `"burst";r=1;t=1800, "hour";r=2;t=3600`, ""},
				{http.StatusOK, `"burst";r=0;t=1800, "hour";r=1;t=3600`, ""},
				{http.StatusTooManyRequests, `"burst";r=0;t=1800, "hour";r=1;t=3600`, "1800"}, // charged to neither
			} {
				a := g.send(t, h, request(t, "POST", "/orders", ""))
				if a.status != want.status || a.header.Get("RateLimit") != want.quota || a.header.Get("Retry-After") != want.retry {
					t.Errorf("%s, %s, request %d: %d, RateLimit %q, Retry-After %q; want %+v",
						g.name, way, i, a.status, a.header.Get("RateLimit"), a.header.Get("Retry-After"), want)
				}
				if got, want := a.header.Get("RateLimit-Policy"), `"burst";q=2;w=3600, "hour";q=3;w=3600`; got != want {
					t.Errorf("%s, %s: RateLimit-Policy %q, want %q", g.name, way, got, want)
				}
			}
		}
	}
}

func TestUndecodableEventChargesNoRule(t *testing.T) {
	t.Parallel()
	rules := newRules(t, 3)
	keyed := false
	rules[1].Key = func(*http.Request) (string, error) {
		keyed = true
		return client, nil
	}
	limit := awslambda.LimitAllFunctionURL(rules, handler.OnError(func(*http.Request, error) {}))
	f := limit(func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
		return events.LambdaFunctionURLResponse{StatusCode: http.StatusOK}, nil
	})
	event := events.LambdaFunctionURLRequest{RawPath: "/%zz"}
	event.RequestContext.HTTP.SourceIP = client
	if response, err := f(t.Context(), event); err != nil || response.StatusCode != http.StatusBadRequest || keyed {
		t.Errorf("%+v, %v; want 400 and no key", response, err)
	}
	for _, rule := range rules {
		if res, err := rule.Limiter.Peek(t.Context(), client); err != nil || res.Remaining != res.Limit {
			t.Errorf("%s has %d left, %v; want %d", rule.Limiter.Name(), res.Remaining, err, res.Limit)
		}
	}
}

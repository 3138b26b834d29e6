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

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

// newStore returns a store whose clock stands still.
func newStore() *memory.Store {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return memory.New(memory.WithClock(func() time.Time { return now }))
}

// newLimiter returns a limiter of n an hour, on a clock that stands still.
func newLimiter(t testing.TB, n int64) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(newStore(), "orders", limiter.PerHour(n))
	must(t, err)
	return l
}

// oneRule returns the rule of n an hour for each client.
func oneRule(t testing.TB, n int64) []handler.Rule {
	t.Helper()
	return []handler.Rule{{Limiter: newLimiter(t, n), Key: handler.ClientIP()}}
}

// newRules returns rules of 2 and of 3 an hour for each client, on a clock that stands still.
func newRules(t testing.TB) []handler.Rule {
	t.Helper()
	store := newStore()
	burst, err := limiter.New(store, "burst", limiter.PerHour(2))
	must(t, err)
	hour, err := limiter.New(store, "hour", limiter.FixedWindow{Limit: 3, Window: time.Hour})
	must(t, err)
	return []handler.Rule{{Limiter: burst, Key: handler.ClientIP()}, {Limiter: hour, Key: handler.ClientIP()}}
}

func ok(context.Context) (status int, header map[string]string, err error) {
	return http.StatusOK, map[string]string{"X-Own": "yes"}, nil
}

// limited returns a function behind limits in each of the ways there are: as a handler
// behind Handler, and as one that takes the event. Each has rules of its own.
func limited(g *gateway, rules func() []handler.Rule) map[string]lambda.Handler {
	limit := handler.NewAll(rules())
	if one := rules(); len(one) == 1 {
		limit = handler.New(one[0].Limiter, one[0].Key)
	}
	plain := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Own", "yes") })
	return map[string]lambda.Handler{
		"handler":  awslambda.Handler(limit(plain), nil),
		"function": g.limitAll(rules())(ok),
	}
}

// invoke passes a recorded event to a function.
func invoke[E, R any](ctx context.Context, t *testing.T, event string, f eventFunc[E, R]) (R, error) {
	t.Helper()
	var e E
	must(t, json.Unmarshal(recorded(t, event), &e))
	return f(ctx, e)
}

func TestFunctionSeesDecisionAndEvent(t *testing.T) {
	t.Parallel()
	called, failed := false, errors.New("failed")
	want := events.APIGatewayProxyResponse{StatusCode: http.StatusOK, Body: "half"}
	f := awslambda.LimitREST(newLimiter(t, 3), handler.ClientIP())(func(ctx context.Context, e events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
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
		return want, failed
	})
	got, err := invoke(context.WithValue(t.Context(), traceKey{}, "trace"), t, "rest", f)
	if !called || err != failed || !reflect.DeepEqual(got, want) {
		t.Errorf("called: %v; %+v, %v; want %+v, %v", called, got, err, want, failed)
	}
}

type traceKey struct{}

func TestRouteOfAFunction(t *testing.T) {
	t.Parallel()
	routes := map[string]string{"rest": "/orders/{proxy+}", "httpapi-format-1.0": "/orders/{proxy+}", "httpapi": "POST /orders/{proxy+}"}
	for _, g := range gateways() {
		var route string
		h := g.limit(newLimiter(t, 1), func(r *http.Request) (string, error) {
			route = r.Pattern
			return "all", nil
		})(ok)
		if _, err := h.Invoke(t.Context(), recorded(t, g.recorded)); err != nil || route != routes[g.recorded] {
			t.Errorf("%s: the route is %q, %v; want %q", g.name, route, err, routes[g.recorded])
		}
	}
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

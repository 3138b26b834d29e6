package awslambda_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
	"github.com/sqlimit/limiter/memory"
)

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

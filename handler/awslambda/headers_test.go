package awslambda_test

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
)

func TestHeadersOfAFunctionStay(t *testing.T) {
	t.Parallel()
	for _, g := range gateways() {
		// Shared by all invocations, as a variable of a package would be.
		shared := map[string]string{
			"ratelimit-policy":              `"own";q=1;w=1`,
			"RateLimit":                     `"own";r=1`,
			"X-RATELIMIT-LIMIT":             "own",
			"access-control-expose-headers": "X-Own",
			"X-Own":                         "yes",
		}
		before := maps.Clone(shared)
		h := g.limit(newLimiter(t, 9), handler.ClientIP(), handler.LegacyHeaders(), handler.ExposeHeaders())(func(context.Context) (int, map[string]string, error) {
			return http.StatusOK, shared, nil
		})
		var a reply
		for range 2 { // the second shows what the first has written to
			a = g.send(t, h, request(t, "GET", "/", ""))
		}
		if !maps.Equal(shared, before) {
			t.Errorf("%s: the function's map was written to: %v", g.name, shared)
		}
		for name, want := range map[string]string{
			"RateLimit-Policy":              `"orders";q=9;w=3600, "own";q=1;w=1`,
			"RateLimit":                     `"orders";r=7;t=400, "own";r=1`,
			"X-RateLimit-Limit":             "own",
			"X-RateLimit-Remaining":         "7",
			"Access-Control-Expose-Headers": "RateLimit-Policy, RateLimit, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Used, X-RateLimit-Reset, X-RateLimit-Resource, X-Own",
			"X-Own":                         "yes",
		} {
			if got := strings.Join(a.header.Values(name), ", "); got != want {
				t.Errorf("%s: %s: %s, want %s", g.name, name, got, want)
			}
		}
	}
}

func TestHeadersJoin(t *testing.T) {
	t.Parallel()
	f := awslambda.LimitREST(newLimiter(t, 9), handler.ClientIP())(func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
		return events.APIGatewayProxyResponse{
			StatusCode:        http.StatusOK,
			Headers:           map[string]string{"RateLimit": `"own";r=1`},
			MultiValueHeaders: map[string][]string{"Ratelimit-Policy": {`"own";q=1;w=1`}, "Vary": {"Accept", "Origin"}},
		}, nil
	})
	got, err := invoke(t.Context(), t, "rest", f)
	must(t, err)
	want := events.APIGatewayProxyResponse{
		StatusCode: http.StatusOK,
		Headers:    map[string]string{"RateLimit": `"orders";r=8;t=400, "own";r=1`},
		MultiValueHeaders: map[string][]string{
			"Ratelimit-Policy": {`"orders";q=9;w=3600`, `"own";q=1;w=1`},
			"Vary":             {"Accept", "Origin"},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func TestSkippedResponseStays(t *testing.T) {
	t.Parallel()
	skip := handler.Skip(func(*http.Request) bool { return true })
	var want events.ALBTargetGroupResponse
	f := awslambda.LimitALB(newLimiter(t, 1), handler.ClientIP(), skip)(func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error) {
		return want, nil
	})
	if got, err := invoke(t.Context(), t, "alb", f); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want the function's own", got, err)
	}
}

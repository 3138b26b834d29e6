package awslambda_test

import (
	"context"
	"encoding/json"
	"errors"
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
			"RateLimit-Policy":  `"orders";q=9;w=3600, "own";q=1;w=1`,
			"X-RateLimit-Limit": "own",
			"X-Own":             "yes",
		} {
			if got := strings.Join(a.header.Values(name), ", "); got != want {
				t.Errorf("%s: %s: %s, want %s", g.name, name, got, want)
			}
		}
		if got := strings.Join(a.header.Values("RateLimit"), ", "); !strings.HasPrefix(got, `"orders";r=7;t=`) || !strings.HasSuffix(got, `, "own";r=1`) {
			t.Errorf("%s: RateLimit: %s", g.name, got)
		}
		if got := strings.Join(a.header.Values("Access-Control-Expose-Headers"), ", "); !strings.HasPrefix(got, "RateLimit-Policy, RateLimit,") || !strings.HasSuffix(got, ", X-Own") {
			t.Errorf("%s: Access-Control-Expose-Headers: %s", g.name, got)
		}
		if got := a.header.Get("X-RateLimit-Remaining"); got != "7" {
			t.Errorf("%s: X-RateLimit-Remaining: %s, want 7", g.name, got)
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
	var event events.APIGatewayProxyRequest
	if err := json.Unmarshal(recorded(t, "rest"), &event); err != nil {
		t.Fatal(err)
	}
	got, err := f(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
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

func TestHeadersGoWhereTheGatewayReads(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, 9)
	rest, err1 := invoke(t, "rest", awslambda.LimitREST(l, handler.ClientIP()))
	api, err2 := invoke(t, "httpapi", awslambda.LimitHTTPAPI(l, handler.ClientIP()))
	url, err3 := invoke(t, "functionurl", awslambda.LimitFunctionURL(l, handler.ClientIP()))
	alb, err4 := invoke(t, "alb", awslambda.LimitALB(l, handler.ClientIP()))
	multi, err5 := invoke(t, "alb-multivalue", awslambda.LimitALB(l, handler.ClientIP()))
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	const want = `"orders";q=9;w=3600`
	for name, header := range map[string]map[string]string{"rest": rest.Headers, "httpapi": api.Headers, "functionurl": url.Headers, "alb": alb.Headers} {
		if header["Ratelimit-Policy"] != want {
			t.Errorf("%s: %v", name, header)
		}
	}
	if got := multi.MultiValueHeaders["Ratelimit-Policy"]; !reflect.DeepEqual(got, []string{want}) || multi.Headers != nil {
		t.Errorf("alb-multivalue: %+v", multi)
	}
	if rest.MultiValueHeaders != nil || api.MultiValueHeaders != nil || alb.MultiValueHeaders != nil {
		t.Errorf("the same twice: %v, %v, %v", rest.MultiValueHeaders, api.MultiValueHeaders, alb.MultiValueHeaders)
	}
}

func TestSkippedResponseStays(t *testing.T) {
	t.Parallel()
	skip := handler.Skip(func(*http.Request) bool { return true })
	got, err := invoke(t, "alb", awslambda.LimitALB(newLimiter(t, 1), handler.ClientIP(), skip))
	if want := (events.ALBTargetGroupResponse{}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want the function's own", got, err)
	}
}

func TestRetryAfterOfNestedFunctions(t *testing.T) {
	t.Parallel()
	for _, g := range gateways() {
		outer, inner := newNamed(t, "outer", 2), newNamed(t, "inner", 60)
		if _, err := inner.AllowN(t.Context(), client, 60); err != nil {
			t.Fatal(err)
		}
		var ctx context.Context
		keep := g.limit(outer, handler.ClientIP())(func(c context.Context) (int, map[string]string, error) {
			ctx = c
			return http.StatusOK, nil, nil
		})
		for _, want := range []string{"60", "1800"} { // the outer bucket has 1 left, then none
			payload := g.payload(t, request(t, "GET", "/", ""))
			if _, err := keep.Invoke(t.Context(), payload); err != nil {
				t.Fatal(err)
			}
			out, err := g.limit(inner, handler.ClientIP())(ok).Invoke(ctx, payload)
			if err != nil {
				t.Fatal(err)
			}
			if a := g.read(t, out); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != want {
				t.Errorf("%s: status %d, Retry-After %s; want 429 and %s", g.name, a.status, a.header.Get("Retry-After"), want)
			}
		}
	}
}

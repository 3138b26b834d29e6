package awslambda_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
	"github.com/sqlimit/limiter/internal/testenv"
)

// client is the address that requests come from in the gateways below.
const client = "192.0.2.1"

// gateway does what AWS does: it makes an event of a request, and a reply of a
// function's response.
type gateway struct {
	name     string
	recorded string // one of its events, in testdata
	// event returns the event, in the form that AWS documents.
	event func(r *http.Request, body string) map[string]any
	// header returns the header that the client gets.
	header func(t *testing.T, res *lambdaResponse) http.Header
	// limitAll returns a function that takes the event itself, behind one limiter or several, as a handler.
	limitAll func(rules []handler.Rule, opts ...handler.Option) limitedFunction
	// plain is the adapter for this gateway alone.
	plain func(http.Handler) lambda.Handler
	// single says that the last line of a header, and the last parameter of a name,
	// are all that arrives.
	single bool
}

// function is a function that takes an event of any kind.
type function func(context.Context) (status int, header map[string]string, err error)

// limitedFunction returns a function as a handler behind limits.
type limitedFunction = func(function) lambda.Handler

// reply is what a client gets.
type reply struct {
	status int
	header http.Header
	body   string
}

// lambdaResponse has the fields of all responses.
type lambdaResponse struct {
	StatusCode        int                 `json:"statusCode"`
	StatusDescription string              `json:"statusDescription"`
	Headers           map[string]string   `json:"headers"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
	Cookies           []string            `json:"cookies"`
	Body              string              `json:"body"`
	IsBase64Encoded   bool                `json:"isBase64Encoded"`
}

func gateways() []gateway {
	rest := newGateway(awslambda.REST, awslambda.LimitREST, awslambda.LimitAllREST,
		func(_ events.APIGatewayProxyRequest, status int, header map[string]string) events.APIGatewayProxyResponse {
			return events.APIGatewayProxyResponse{StatusCode: status, Headers: header}
		})
	rest.name, rest.recorded, rest.header = "REST API", "rest", restHeader
	rest.event = func(r *http.Request, body string) map[string]any {
		return restEvent(r, body, r.URL.EscapedPath(), "al6gqb")
	}
	format1 := rest
	format1.name, format1.recorded = "HTTP API, format 1.0", "httpapi-format-1.0"
	format1.event = func(r *http.Request, body string) map[string]any {
		event := restEvent(r, body, r.URL.Path, nil)
		event["version"] = "1.0"
		return event
	}
	httpAPI := newGateway(awslambda.HTTPAPI, awslambda.LimitHTTPAPI, awslambda.LimitAllHTTPAPI,
		func(_ events.APIGatewayV2HTTPRequest, status int, header map[string]string) events.APIGatewayV2HTTPResponse {
			return events.APIGatewayV2HTTPResponse{StatusCode: status, Headers: header}
		})
	httpAPI.name, httpAPI.recorded, httpAPI.header = "HTTP API", "httpapi", v2Header
	httpAPI.event = func(r *http.Request, body string) map[string]any {
		return v2Event(r, body, r.URL.Path, "a1.execute-api.eu-central-1.amazonaws.com")
	}
	functionURL := newGateway(awslambda.FunctionURL, awslambda.LimitFunctionURL, awslambda.LimitAllFunctionURL,
		func(_ events.LambdaFunctionURLRequest, status int, header map[string]string) events.LambdaFunctionURLResponse {
			return events.LambdaFunctionURLResponse{StatusCode: status, Headers: header}
		})
	functionURL.name, functionURL.recorded, functionURL.header = "function URL", "functionurl", v2Header
	functionURL.event = func(r *http.Request, body string) map[string]any {
		return v2Event(r, body, r.URL.EscapedPath(), "u1.lambda-url.eu-central-1.on.aws")
	}
	alb := newGateway(awslambda.ALB, awslambda.LimitALB, awslambda.LimitAllALB, albResponse)
	alb.name, alb.recorded, alb.header, alb.single = "ALB", "alb", albHeader(false), true
	alb.event = func(r *http.Request, body string) map[string]any { return albEvent(r, body, false) }
	multi := alb
	multi.name, multi.recorded, multi.header, multi.single = "ALB, multi-value headers", "alb-multivalue", albHeader(true), false
	multi.event = func(r *http.Request, body string) map[string]any { return albEvent(r, body, true) }
	return []gateway{rest, format1, httpAPI, functionURL, alb, multi}
}

func albResponse(e events.ALBTargetGroupRequest, status int, header map[string]string) events.ALBTargetGroupResponse {
	res := events.ALBTargetGroupResponse{StatusCode: status, StatusDescription: "000 Of The Function's Own", Headers: header}
	if e.MultiValueHeaders != nil && header != nil {
		res.Headers, res.MultiValueHeaders = nil, make(map[string][]string)
		for name, value := range header {
			res.MultiValueHeaders[name] = []string{value}
		}
	}
	return res
}

// eventFunc is a function that takes the event itself.
type eventFunc[E, R any] = func(context.Context, E) (R, error)

// newGateway returns the part of a gateway that its adapters make: of a handler, of a function behind
// one limiter, and of a function behind several.
func newGateway[E, R any](
	adapt func(http.Handler) eventFunc[E, R],
	one func(handler.Limiter, handler.KeyFunc, ...handler.Option) func(eventFunc[E, R]) eventFunc[E, R],
	all func([]handler.Rule, ...handler.Option) func(eventFunc[E, R]) eventFunc[E, R],
	respond func(E, int, map[string]string) R,
) gateway {
	return gateway{
		plain: func(h http.Handler) lambda.Handler { return lambda.NewHandler(adapt(h)) },
		limitAll: func(rules []handler.Rule, opts ...handler.Option) limitedFunction {
			limit := all
			if len(rules) == 1 {
				limit = func(r []handler.Rule, opts ...handler.Option) func(eventFunc[E, R]) eventFunc[E, R] {
					return one(r[0].Limiter, r[0].Key, opts...)
				}
			}
			return func(f function) lambda.Handler {
				return lambda.NewHandler(limit(rules, opts...)(func(ctx context.Context, e E) (R, error) {
					status, header, err := f(ctx)
					return respond(e, status, header), err
				}))
			}
		},
	}
}

// limit is limitAll for one limiter.
func (g *gateway) limit(l *limiter.Limiter, key handler.KeyFunc, opts ...handler.Option) limitedFunction {
	return g.limitAll([]handler.Rule{{Limiter: l, Key: key}}, opts...)
}

// send passes a request through the gateway to a function.
func (g *gateway) send(t *testing.T, h lambda.Handler, r *http.Request) reply {
	t.Helper()
	return g.answer(t, h, g.payload(t, r))
}

// answer returns what the client gets of a function that the gateway passes an event.
func (g *gateway) answer(t *testing.T, h lambda.Handler, payload []byte) reply {
	t.Helper()
	out, err := h.Invoke(t.Context(), payload)
	if err != nil {
		t.Fatalf("%s: Invoke: %v", g.name, err)
	}
	return g.read(t, out)
}

func (g *gateway) payload(t *testing.T, r *http.Request) []byte {
	t.Helper()
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		must(t, err)
		body = string(b)
	}
	payload, err := json.Marshal(g.event(r, body))
	must(t, err)
	return payload
}

// read returns what the client gets of a function's response.
func (g *gateway) read(t *testing.T, payload []byte) reply {
	t.Helper()
	var res lambdaResponse
	if err := json.Unmarshal(payload, &res); err != nil {
		t.Fatalf("%s: the response %s: %v", g.name, payload, err)
	}
	a := reply{status: res.StatusCode, header: g.header(t, &res), body: res.Body}
	if res.IsBase64Encoded {
		b, err := base64.StdEncoding.DecodeString(res.Body)
		if err != nil {
			t.Fatalf("%s: the response's body: %v", g.name, err)
		}
		a.body = string(b)
	}
	return a
}

// request returns a request that a client sends. The target holds no fragment.
func request(t *testing.T, method, target, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://api.example.com"+target, strings.NewReader(body))
	must(t, err)
	must(t, testenv.ErrorOf(url.ParseRequestURI(target)))
	return r
}

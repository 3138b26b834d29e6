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

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
)

// client is the address that requests come from in the gateways below.
const client = "192.0.2.1"

// gateway does what AWS does: it makes an event of a request, and a reply of a
// function's response.
type gateway struct {
	name string
	// event returns the event, in the form that AWS documents.
	event func(r *http.Request, body string) map[string]any
	// header returns the header that the client gets.
	header func(t *testing.T, res *lambdaResponse) http.Header
	// limit returns a limited function that takes the event itself, as a handler.
	limit func(l handler.Limiter, key handler.KeyFunc, opts ...handler.Option) func(function) lambda.Handler
	// limitAll returns one that several limiters limit.
	limitAll func(rules []handler.Rule, opts ...handler.Option) func(function) lambda.Handler
	// plain is the adapter for this gateway alone.
	plain func(http.Handler) lambda.Handler
	// single says that the last line of a header, and the last parameter of a name,
	// are all that arrives.
	single bool
}

// function is a function that takes an event of any kind.
type function func(context.Context) (status int, header map[string]string, err error)

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
	rest := gateway{
		name: "REST API",
		event: func(r *http.Request, body string) map[string]any {
			return restEvent(r, body, r.URL.EscapedPath(), "al6gqb")
		},
		header: restHeader,
		plain:  func(h http.Handler) lambda.Handler { return lambda.NewHandler(awslambda.REST(h)) },
		limit: func(l handler.Limiter, key handler.KeyFunc, opts ...handler.Option) func(function) lambda.Handler {
			return restFunction(awslambda.LimitREST(l, key, opts...))
		},
		limitAll: func(rules []handler.Rule, opts ...handler.Option) func(function) lambda.Handler {
			return restFunction(awslambda.LimitAllREST(rules, opts...))
		},
	}
	format1 := rest
	format1.name = "HTTP API, format 1.0"
	format1.event = func(r *http.Request, body string) map[string]any {
		event := restEvent(r, body, r.URL.Path, nil)
		event["version"] = "1.0"
		return event
	}
	alb := gateway{
		name:   "ALB",
		event:  func(r *http.Request, body string) map[string]any { return albEvent(r, body, false) },
		header: albHeader(false),
		plain:  func(h http.Handler) lambda.Handler { return lambda.NewHandler(awslambda.ALB(h)) },
		single: true,
		limit: func(l handler.Limiter, key handler.KeyFunc, opts ...handler.Option) func(function) lambda.Handler {
			return albFunction(awslambda.LimitALB(l, key, opts...))
		},
		limitAll: func(rules []handler.Rule, opts ...handler.Option) func(function) lambda.Handler {
			return albFunction(awslambda.LimitAllALB(rules, opts...))
		},
	}
	multi := alb
	multi.name, multi.single = "ALB, multi-value headers", false
	multi.event = func(r *http.Request, body string) map[string]any { return albEvent(r, body, true) }
	multi.header = albHeader(true)
	return []gateway{
		rest,
		format1,
		{
			name: "HTTP API",
			event: func(r *http.Request, body string) map[string]any {
				return v2Event(r, body, r.URL.Path, "a1.execute-api.eu-central-1.amazonaws.com")
			},
			header: v2Header,
			plain:  func(h http.Handler) lambda.Handler { return lambda.NewHandler(awslambda.HTTPAPI(h)) },
			limit: func(l handler.Limiter, key handler.KeyFunc, opts ...handler.Option) func(function) lambda.Handler {
				return httpAPIFunction(awslambda.LimitHTTPAPI(l, key, opts...))
			},
			limitAll: func(rules []handler.Rule, opts ...handler.Option) func(function) lambda.Handler {
				return httpAPIFunction(awslambda.LimitAllHTTPAPI(rules, opts...))
			},
		},
		{
			name: "function URL",
			event: func(r *http.Request, body string) map[string]any {
				return v2Event(r, body, r.URL.EscapedPath(), "u1.lambda-url.eu-central-1.on.aws")
			},
			header: v2Header,
			plain:  func(h http.Handler) lambda.Handler { return lambda.NewHandler(awslambda.FunctionURL(h)) },
			limit: func(l handler.Limiter, key handler.KeyFunc, opts ...handler.Option) func(function) lambda.Handler {
				return functionURLFunction(awslambda.LimitFunctionURL(l, key, opts...))
			},
			limitAll: func(rules []handler.Rule, opts ...handler.Option) func(function) lambda.Handler {
				return functionURLFunction(awslambda.LimitAllFunctionURL(rules, opts...))
			},
		},
		alb,
		multi,
	}
}

// restFunction returns functions behind limit as handlers.
func restFunction(limit func(awslambda.RESTFunc) awslambda.RESTFunc) func(function) lambda.Handler {
	return func(f function) lambda.Handler {
		return lambda.NewHandler(limit(func(ctx context.Context, _ events.APIGatewayProxyRequest) (res events.APIGatewayProxyResponse, err error) {
			res.StatusCode, res.Headers, err = f(ctx)
			return res, err
		}))
	}
}

// albFunction returns functions behind limit as handlers.
func albFunction(limit func(awslambda.ALBFunc) awslambda.ALBFunc) func(function) lambda.Handler {
	return func(f function) lambda.Handler {
		return lambda.NewHandler(limit(func(ctx context.Context, e events.ALBTargetGroupRequest) (res events.ALBTargetGroupResponse, err error) {
			var header map[string]string
			res.StatusCode, header, err = f(ctx)
			res.StatusDescription = "000 Of The Function's Own"
			res.Headers = header
			if e.MultiValueHeaders != nil && header != nil {
				res.Headers, res.MultiValueHeaders = nil, make(map[string][]string)
				for name, value := range header {
					res.MultiValueHeaders[name] = []string{value}
				}
			}
			return res, err
		}))
	}
}

// httpAPIFunction returns functions behind limit as handlers.
func httpAPIFunction(limit func(awslambda.HTTPAPIFunc) awslambda.HTTPAPIFunc) func(function) lambda.Handler {
	return func(f function) lambda.Handler {
		return lambda.NewHandler(limit(func(ctx context.Context, _ events.APIGatewayV2HTTPRequest) (res events.APIGatewayV2HTTPResponse, err error) {
			res.StatusCode, res.Headers, err = f(ctx)
			return res, err
		}))
	}
}

// functionURLFunction returns functions behind limit as handlers.
func functionURLFunction(limit func(awslambda.FunctionURLFunc) awslambda.FunctionURLFunc) func(function) lambda.Handler {
	return func(f function) lambda.Handler {
		return lambda.NewHandler(limit(func(ctx context.Context, _ events.LambdaFunctionURLRequest) (res events.LambdaFunctionURLResponse, err error) {
			res.StatusCode, res.Headers, err = f(ctx)
			return res, err
		}))
	}
}

// send passes a request through the gateway to a function.
func (g *gateway) send(t *testing.T, h lambda.Handler, r *http.Request) reply {
	t.Helper()
	payload, err := h.Invoke(t.Context(), g.payload(t, r))
	if err != nil {
		t.Fatalf("%s: Invoke: %v", g.name, err)
	}
	return g.read(t, payload)
}

func (g *gateway) payload(t *testing.T, r *http.Request) []byte {
	t.Helper()
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		body = string(b)
	}
	payload, err := json.Marshal(g.event(r, body))
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if _, err := url.ParseRequestURI(target); err != nil {
		t.Fatal(err)
	}
	return r
}

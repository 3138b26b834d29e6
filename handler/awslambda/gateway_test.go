package awslambda_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
	"github.com/sqlimit/limiter/internal/testenv"
)

// client is the address that requests come from in the gateways below.
const client = "192.0.2.1"

// gateway makes an event of a request, and a reply of a function's response, as AWS does.
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
	// single says that only the last line of a header, and the last parameter of a name, arrive.
	single bool
}

type function func(context.Context) (status int, header map[string]string, err error)

type limitedFunction = func(function) lambda.Handler

type reply struct {
	status int
	header http.Header
	body   string
}

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
	rest.name, rest.recorded = "REST API", "rest"
	rest.header = func(_ *testing.T, res *lambdaResponse) http.Header {
		return headerOf(res.Headers, res.MultiValueHeaders, nil)
	}
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

type eventFunc[E, R any] = func(context.Context, E) (R, error)

// newGateway returns the part of a gateway that its adapters make.
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

func (g *gateway) limit(l *limiter.Limiter, key handler.KeyFunc, opts ...handler.Option) limitedFunction {
	return g.limitAll([]handler.Rule{{Limiter: l, Key: key}}, opts...)
}

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
	body, err := io.ReadAll(r.Body)
	must(t, err)
	payload, err := json.Marshal(g.event(r, string(body)))
	must(t, err)
	return payload
}

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

func request(t *testing.T, method, target, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://api.example.com"+target, strings.NewReader(body))
	must(t, err)
	must(t, testenv.ErrorOf(url.ParseRequestURI(target)))
	return r
}

// forwarded returns the request's header with what a gateway adds.
func forwarded(r *http.Request) http.Header {
	h := r.Header.Clone()
	h.Set("Host", r.Host)
	h.Set("X-Forwarded-For", strings.Join(append(h.Values("X-Forwarded-For"), client), ", "))
	h.Set("X-Forwarded-Proto", "https")
	return h
}

func setBody(event map[string]any, body string) map[string]any {
	event["body"], event["isBase64Encoded"] = body, !utf8.ValidString(body)
	if !utf8.ValidString(body) {
		event["body"] = base64.StdEncoding.EncodeToString([]byte(body))
	}
	return event
}

func last(values map[string][]string) map[string]string {
	lasts := make(map[string]string)
	for name, v := range values {
		lasts[name] = v[len(v)-1]
	}
	return lasts
}

func restEvent(r *http.Request, body, path string, resource any) map[string]any {
	h, query := forwarded(r), r.URL.Query()
	return setBody(map[string]any{
		"resource": "/{proxy+}", "path": path, "httpMethod": r.Method,
		"headers": last(h), "multiValueHeaders": h,
		"queryStringParameters": last(query), "multiValueQueryStringParameters": query,
		"requestContext": map[string]any{
			"resourceId": resource, "protocol": "HTTP/1.1", "domainName": r.Host,
			"identity": map[string]any{"sourceIp": client},
		},
	}, body)
}

// headerOf returns the header of the fields of a response that a gateway reads.
func headerOf(values map[string]string, lists map[string][]string, cookies []string) http.Header {
	h := make(http.Header)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		h.Add(name, values[name])
	}
	for name, lines := range lists {
		h[http.CanonicalHeaderKey(name)] = lines
	}
	for _, cookie := range cookies {
		h.Add("Set-Cookie", cookie)
	}
	return h
}

func v2Event(r *http.Request, body, path, domain string) map[string]any {
	headers := make(map[string]string)
	for name, lines := range forwarded(r) {
		headers[strings.ToLower(name)] = strings.Join(lines, ",")
	}
	event := map[string]any{
		"version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": r.URL.RawQuery, "headers": headers,
		"requestContext": map[string]any{
			"domainName": domain,
			"http":       map[string]any{"method": r.Method, "path": r.URL.Path, "protocol": "HTTP/1.1", "sourceIp": client},
		},
	}
	if cookie, ok := headers["cookie"]; ok {
		event["cookies"] = strings.Split(cookie, "; ")
		if !strings.Contains(domain, "lambda-url") {
			delete(headers, "cookie")
		}
	}
	return setBody(event, body)
}

func v2Header(_ *testing.T, res *lambdaResponse) http.Header {
	return headerOf(res.Headers, nil, res.Cookies)
}

func albEvent(r *http.Request, body string, multi bool) map[string]any {
	event := map[string]any{
		"httpMethod": r.Method, "path": r.URL.EscapedPath(),
		"requestContext": map[string]any{"elb": map[string]any{"targetGroupArn": "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/t/1"}},
	}
	header := make(map[string][]string)
	for name, lines := range forwarded(r) {
		header[strings.ToLower(name)] = lines
	}
	query := make(map[string][]string)
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if name, value, _ := strings.Cut(part, "="); name != "" {
			query[name] = append(query[name], value)
		}
	}
	if multi {
		// What the client sent comes first, and then again with its address.
		header["x-forwarded-for"] = append(slices.Clone(r.Header["X-Forwarded-For"]), header["x-forwarded-for"]...)
		event["multiValueHeaders"], event["multiValueQueryStringParameters"] = header, query
	} else {
		event["headers"], event["queryStringParameters"] = last(header), last(query)
	}
	return setBody(event, body)
}

func albHeader(multi bool) func(*testing.T, *lambdaResponse) http.Header {
	return func(t *testing.T, res *lambdaResponse) http.Header {
		t.Helper()
		code, phrase, _ := strings.Cut(res.StatusDescription, " ")
		if len(code) != 3 || phrase == "" {
			t.Errorf("the status description is %q; an ALB answers that with 502", res.StatusDescription)
		}
		if multi {
			return headerOf(nil, res.MultiValueHeaders, nil)
		}
		if res.Headers == nil {
			t.Error("the response has no headers; an ALB answers that with 502")
		}
		return headerOf(res.Headers, nil, nil)
	}
}

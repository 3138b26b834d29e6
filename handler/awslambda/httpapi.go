package awslambda

import (
	"context"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/sqlimit/limiter/handler"
)

// HTTPAPIFunc is a Lambda function for the events of an HTTP API with payload format 2.0.
type HTTPAPIFunc = func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// HTTPAPI returns a function that serves the events of an HTTP API with payload format 2.0 with h.
// It panics if h is nil.
func HTTPAPI(h http.Handler) HTTPAPIFunc { return httpAPIForm.handle(h) }

// LimitHTTPAPI returns middleware, like [handler.New], for functions that take the events of an
// HTTP API with payload format 2.0.
//
// The key function and the options get the event as an *http.Request, and [EventFromContext]
// returns the event from the request's context. [handler.Route] is the route of API Gateway; for a
// REST API it is the resource, with any method. A refusal is a response of the event's kind with
// status 429. [handler.ResultFromContext] returns the decision from the function's context.
//
// If the path or body of an event cannot be decoded, the event has no key. It is refused with 400
// and charges nothing. If [handler.Skip] or [handler.DryRun] lets it pass, it reaches the function.
// Skip then gets the path as it was sent, and no body.
//
// The limiter's header fields are added to the function's response. RateLimit-Policy, RateLimit and
// Access-Control-Expose-Headers are lists, in which the function's values follow the limiter's. For
// any other field the function's value stays. The middleware does not write to the function's maps,
// and returns an error of the function unchanged.
//
// With [handler.ChargeFailures], the function calls [handler.Succeeded] with its context if the
// request has succeeded. The status does not show that: a login may answer a wrong password with a
// redirect.
//
// LimitHTTPAPI panics as handler.New does. The middleware panics if the function is nil.
func LimitHTTPAPI(l handler.Limiter, key handler.KeyFunc, opts ...handler.Option) func(HTTPAPIFunc) HTTPAPIFunc {
	return httpAPIForm.limit(l, key, opts)
}

// LimitAllHTTPAPI is [LimitHTTPAPI] with several limiters and one decision over all of them, as
// [handler.NewAll] makes it. The functions of a [handler.Rule] get the event as an *http.Request.
//
// LimitAllHTTPAPI panics as handler.NewAll does. The middleware panics if the function is nil.
func LimitAllHTTPAPI(rules []handler.Rule, opts ...handler.Option) func(HTTPAPIFunc) HTTPAPIFunc {
	return httpAPIForm.limitAll(rules, opts)
}

var httpAPIForm = form[events.APIGatewayV2HTTPRequest, events.APIGatewayV2HTTPResponse]{
	request: func(e *events.APIGatewayV2HTTPRequest) message {
		return message{
			method:    e.RequestContext.HTTP.Method,
			path:      e.RawPath,
			unescaped: true, // in spite of its name
			query:     strings.TrimPrefix(e.RawQueryString, "?"),
			header:    headerWithCookies(e.Headers, e.Cookies),
			host:      e.RequestContext.DomainName,
			addr:      e.RequestContext.HTTP.SourceIP,
			proto:     e.RequestContext.HTTP.Protocol,
			body:      e.Body,
			base64:    e.IsBase64Encoded,
		}
	},
	response: func(_ *events.APIGatewayV2HTTPRequest, r response) events.APIGatewayV2HTTPResponse {
		return events.APIGatewayV2HTTPResponse{
			StatusCode:      r.status,
			Headers:         r.joined(),
			Cookies:         r.header[cookieField],
			Body:            r.body,
			IsBase64Encoded: r.base64,
		}
	},
	merge: func(_ *events.APIGatewayV2HTTPRequest, r *events.APIGatewayV2HTTPResponse, h http.Header) {
		r.Headers, _ = merged(h, r.Headers, nil, false) // MultiValueHeaders mean nothing to an HTTP API
	},
	route: func(e *events.APIGatewayV2HTTPRequest) string { return e.RouteKey },
}

// headerWithCookies returns the header of an event that has its cookies in a separate list.
// Function URLs also leave them in the header.
func headerWithCookies(lines map[string]string, cookies []string) http.Header {
	h := headerOf(nil, lines)
	if len(cookies) > 0 {
		h.Set("Cookie", strings.Join(cookies, "; "))
	}
	return h
}

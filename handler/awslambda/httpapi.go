package awslambda

import (
	"context"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/sqlimit/limiter/handler"
)

// HTTPAPIFunc is a function for events of an API Gateway HTTP API with payload
// format 2.0.
type HTTPAPIFunc = func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// HTTPAPI returns a function that serves the events of an HTTP API with payload
// format 2.0 with h. It panics if h is nil.
func HTTPAPI(h http.Handler) HTTPAPIFunc { return httpAPIForm.handle(h) }

// LimitHTTPAPI returns middleware, as [handler.New] does, for functions that take the
// events of an HTTP API with payload format 2.0.
//
// The key function and the options see the event as an *http.Request, whose context
// has it for [EventFromContext]; [handler.Route] is the route of API Gateway, for a REST
// API its resource whatever the method. A refusal is a response of the event's kind, with
// status 429. The function's context has the decision for [handler.ResultFromContext].
//
// An event whose path or body cannot be decoded has no key: it is refused with 400 and
// charges nothing. If [handler.Skip] or [handler.DryRun] lets it pass, it reaches the
// function. Skip then sees the path as it was sent, and no body.
//
// To the response that the function returns, the limiter's header fields are added.
// RateLimit-Policy, RateLimit and Access-Control-Expose-Headers are lists: the
// function's own values follow the limiter's. Of any other field, the function's own
// value stays. The function's maps are not written to. An error of the function is
// returned as it is.
//
// With [handler.ChargeFailures] the function calls [handler.Succeeded] with its context
// when the request has succeeded. A status does not tell: a login may answer a wrong
// password by a redirect.
//
// LimitHTTPAPI panics as handler.New does, and the middleware if the function is nil.
func LimitHTTPAPI(l handler.Limiter, key handler.KeyFunc, opts ...handler.Option) func(HTTPAPIFunc) HTTPAPIFunc {
	return httpAPIForm.limit(l, key, opts)
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
	answer: func(_ *events.APIGatewayV2HTTPRequest, r response) events.APIGatewayV2HTTPResponse {
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

// headerWithCookies returns the header of an event that has cookies apart. Function
// URLs leave them in the header, too.
func headerWithCookies(lines map[string]string, cookies []string) http.Header {
	h := headerOf(nil, lines)
	if len(cookies) > 0 {
		h.Set("Cookie", strings.Join(cookies, "; "))
	}
	return h
}

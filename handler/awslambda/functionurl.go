package awslambda

import (
	"context"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/sqlimit/limiter/handler"
)

// FunctionURLFunc is a Lambda function for the events of a function URL with the invoke mode
// BUFFERED, which is the default.
type FunctionURLFunc = func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error)

// FunctionURL returns a function that serves the events of a function URL with h. It panics if h is
// nil.
func FunctionURL(h http.Handler) FunctionURLFunc { return functionURLForm.handle(h) }

// LimitFunctionURL is [LimitHTTPAPI] for functions that take the events of a function URL, which
// have no route.
func LimitFunctionURL(l handler.Limiter, key handler.KeyFunc, opts ...handler.Option) func(FunctionURLFunc) FunctionURLFunc {
	return functionURLForm.limit(l, key, opts)
}

// LimitAllFunctionURL is [LimitAllHTTPAPI] for functions that take the events of a function URL,
// which have no route.
func LimitAllFunctionURL(rules []handler.Rule, opts ...handler.Option) func(FunctionURLFunc) FunctionURLFunc {
	return functionURLForm.limitAll(rules, opts)
}

var functionURLForm = form[events.LambdaFunctionURLRequest, events.LambdaFunctionURLResponse]{
	request: func(e *events.LambdaFunctionURLRequest) message {
		return message{
			method: e.RequestContext.HTTP.Method,
			path:   e.RawPath,
			query:  strings.TrimPrefix(e.RawQueryString, "?"),
			header: headerWithCookies(e.Headers, e.Cookies),
			host:   e.RequestContext.DomainName,
			addr:   e.RequestContext.HTTP.SourceIP,
			proto:  e.RequestContext.HTTP.Protocol,
			body:   e.Body,
			base64: e.IsBase64Encoded,
		}
	},
	response: func(_ *events.LambdaFunctionURLRequest, r response) events.LambdaFunctionURLResponse {
		return events.LambdaFunctionURLResponse{
			StatusCode:      r.status,
			Headers:         r.joined(),
			Cookies:         r.header[cookieField],
			Body:            r.body,
			IsBase64Encoded: r.base64,
		}
	},
	merge: func(_ *events.LambdaFunctionURLRequest, r *events.LambdaFunctionURLResponse, h http.Header) {
		r.Headers, _ = merged(h, r.Headers, nil, false)
	},
}

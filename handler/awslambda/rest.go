package awslambda

import (
	"context"
	"net/http"
	"net/url"

	"github.com/aws/aws-lambda-go/events"

	"github.com/sqlimit/limiter/handler"
)

// RESTFunc is a Lambda function for the events of a REST API, or of an HTTP API with payload format
// 1.0.
type RESTFunc = func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error)

// REST returns a function that serves the events of a REST API, or of an HTTP API with payload
// format 1.0, with h. It panics if h is nil.
func REST(h http.Handler) RESTFunc { return restForm.handle(h) }

// LimitREST is [LimitHTTPAPI] for functions that take the events of a REST API, or of an HTTP API
// with payload format 1.0.
func LimitREST(l handler.Limiter, key handler.KeyFunc, opts ...handler.Option) func(RESTFunc) RESTFunc {
	return restForm.limit(l, key, opts)
}

// LimitAllREST is [LimitAllHTTPAPI] for functions that take the events of a REST API, or of an HTTP
// API with payload format 1.0.
func LimitAllREST(rules []handler.Rule, opts ...handler.Option) func(RESTFunc) RESTFunc {
	return restForm.limitAll(rules, opts)
}

// ofHTTPAPI reports whether an event is one of an HTTP API with payload format 1.0. Only
// HTTP APIs have no resources; only they unescape the path, and decode every body in base64.
func ofHTTPAPI(e *events.APIGatewayProxyRequest) bool { return e.RequestContext.ResourceID == "" }

var restForm = form[events.APIGatewayProxyRequest, events.APIGatewayProxyResponse]{
	request: func(e *events.APIGatewayProxyRequest) message {
		query := make(url.Values) // REST APIs unescape it, so that it is escaped again
		for name, values := range sorted(e.MultiValueQueryStringParameters, e.QueryStringParameters) {
			query[name] = values
		}
		return message{
			method:    e.HTTPMethod,
			path:      e.Path,
			unescaped: ofHTTPAPI(e),
			query:     query.Encode(),
			header:    headerOf(e.MultiValueHeaders, e.Headers),
			host:      e.RequestContext.DomainName,
			addr:      e.RequestContext.Identity.SourceIP,
			proto:     e.RequestContext.Protocol,
			body:      e.Body,
			base64:    e.IsBase64Encoded,
		}
	},
	response: func(_ *events.APIGatewayProxyRequest, r response) events.APIGatewayProxyResponse {
		return events.APIGatewayProxyResponse{
			StatusCode: r.status,
			// Not in Headers as well: HTTP APIs send both.
			MultiValueHeaders: r.header,
			Body:              r.body,
			IsBase64Encoded:   r.base64,
		}
	},
	decodes: ofHTTPAPI, // a REST API decodes only what it knows as binary
	merge: func(_ *events.APIGatewayProxyRequest, r *events.APIGatewayProxyResponse, h http.Header) {
		r.Headers, r.MultiValueHeaders = merged(h, r.Headers, r.MultiValueHeaders, false)
	},
	route: func(e *events.APIGatewayProxyRequest) string { return e.Resource },
}

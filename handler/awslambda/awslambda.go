// Package awslambda serves the HTTP events of AWS Lambda: those of API Gateway's
// REST APIs and HTTP APIs, of function URLs, and of Application Load Balancers.
//
// A plain [http.Handler] serves all four, with the limiter in front of it as on
// any server, so that one program runs in both worlds:
//
//	limit := handler.New(perClient, handler.ClientIP())
//	lambda.Start(awslambda.Handler(limit(mux), nil))
//
// [REST], [HTTPAPI], [FunctionURL] and [ALB] do the same for one kind of event. A
// function that takes the event itself is limited by [LimitREST], [LimitHTTPAPI],
// [LimitFunctionURL] or [LimitALB]:
//
//	limit := awslambda.LimitHTTPAPI(perClient, handler.ClientIP())
//	lambda.Start(limit(func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
//		...
//	}))
//
// Whatever the limiter answers is in the event's own form.
//
// # Addresses
//
// RemoteAddr is the address that the event's requestContext names, without a port:
// what connected to the gateway, whatever headers it sent. [handler.ClientIP] needs
// no option for it. Behind CloudFront that is CloudFront, see there.
//
// An ALB's event has no such field. There it is the last element of
// X-Forwarded-For, which the load balancer appends, unless the attribute
// routing.http.xff_header_processing.mode was changed from append: with preserve,
// clients choose the address; with remove, and in the health checks of the load
// balancer, there is none, and ClientIP refuses the request. Serve the path of
// health checks outside of the limiter.
//
// # Paths
//
// The path is what the gateway passes on. It begins with the stage where an HTTP
// API has a named one, and with the base path where a REST API has a custom domain
// with one; [http.StripPrefix] removes them. HTTP APIs have unescaped the path
// already, in both of their payload formats: it is not unescaped again, and "%2F"
// cannot be told from "/". The others pass it on as the client sent it.
//
// # Responses
//
// Responses are buffered, and Flush sends nothing: Lambda sends a response when the
// function has returned. (For a function URL with the invoke mode RESPONSE_STREAM,
// pass the limited handler to package lambdaurl of aws-lambda-go.)
//
// A body is sent in base64 if it is not UTF-8, if it has a Content-Encoding, or if that is
// shorter than the body as a JSON string: Lambda takes 6 MB of JSON. A REST API decodes
// base64 only for the API's binary media types. For a REST API, a body without control
// characters therefore stays text.
//
// Header fields of one name are joined by commas where the form has one value for a
// name, but for Set-Cookie. An ALB has room for several cookies only if its target group
// has multi-value headers enabled.
//
// A panic is not recovered: it ends the process, as that of any function does.
//
// After each invocation, also after a panic, the adapters remove the temporary files of
// [http.Request.MultipartForm]. They do not see a form that was parsed on a copy of the request, as
// [http.StripPrefix], [http.MaxBytesHandler] and Request.WithContext make one outside of a limiter:
// there the handler that parses a form must call RemoveAll itself.
//
// # Deadlines
//
// A request's context is the invocation's, and ends with it. A limiter.Limiter answers
// 100 ms before that, also when the store hangs. If the operation had all of the time that
// limiter.WithTimeout gives it, its failure policy answers. Otherwise the answer is 503.
// So keep that time, 250 ms by default, at least 100 ms below what is left of the
// invocation when it asks the limiter.
package awslambda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/lambda"
)

// ErrUnknownEvent is returned by [Handler] for an event of another kind, such as a
// scheduled one, when there is no other handler for it.
var ErrUnknownEvent = errors.New("awslambda: the event comes from no API Gateway, function URL or load balancer; pass a lambda.Handler for other events")

// Handler returns a [lambda.Handler] that serves each of the four kinds of HTTP
// events with h. All other events go to other, which [lambda.NewHandler] makes from
// a function: scheduled events, WebSocket messages, and API Gateway's requests to
// authorizers, which are no HTTP requests though they look like them. If other is
// nil their error matches [ErrUnknownEvent].
//
// It is safe for concurrent use if h and other are. It panics if h is nil.
func Handler(h http.Handler, other lambda.Handler) lambda.Handler {
	return &dispatcher{readable(h), other}
}

type dispatcher struct {
	handler http.Handler
	other   lambda.Handler
}

// Invoke serves one event.
func (d *dispatcher) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	switch kindOf(payload) {
	case kindREST:
		return invoke(ctx, payload, &restForm, d.handler)
	case kindHTTPAPI:
		return invoke(ctx, payload, &httpAPIForm, d.handler)
	case kindFunctionURL:
		return invoke(ctx, payload, &functionURLForm, d.handler)
	case kindALB:
		return invoke(ctx, payload, &albForm, d.handler)
	}
	if d.other == nil {
		return nil, ErrUnknownEvent
	}
	return d.other.Invoke(ctx, payload)
}

func invoke[E, R any](ctx context.Context, payload []byte, f *form[E, R], h http.Handler) ([]byte, error) {
	event := new(E)
	if err := json.Unmarshal(payload, event); err != nil {
		return nil, fmt.Errorf("awslambda: the event cannot be read: %w", err)
	}
	response := f.respond(event, f.serve(ctx, event, h))
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // six bytes for each < of a page, of 6 MB that a response may have
	if err := enc.Encode(response); err != nil {
		return nil, fmt.Errorf("awslambda: the response cannot be written: %w", err)
	}
	return out.Bytes(), nil
}

type kind int

const (
	kindOther kind = iota
	kindREST
	kindHTTPAPI
	kindFunctionURL
	kindALB
)

// kindOf tells what kind of event a payload is, by fields that clients cannot set.
func kindOf(payload []byte) kind {
	var e struct {
		Version        string `json:"version"`
		Type           any    `json:"type"` // requests to authorizers have one
		HTTPMethod     string `json:"httpMethod"`
		RequestContext struct {
			ELB          *struct{} `json:"elb"`
			Identity     *struct{} `json:"identity"`
			ConnectionID any       `json:"connectionId"` // of a WebSocket
			DomainName   string    `json:"domainName"`
			HTTP         struct {
				Method string `json:"method"`
			} `json:"http"`
		} `json:"requestContext"`
	}
	// A field of another type belongs to another kind of event.
	if json.Unmarshal(payload, &e) != nil || e.Type != nil || e.RequestContext.ConnectionID != nil {
		return kindOther
	}
	rc := &e.RequestContext
	switch {
	case rc.ELB != nil && e.HTTPMethod != "":
		return kindALB
	case rc.Identity != nil && e.HTTPMethod != "":
		return kindREST
	case e.Version != "2.0" || rc.HTTP.Method == "":
		return kindOther
	case strings.Contains(rc.DomainName, ".lambda-url.") && strings.HasSuffix(rc.DomainName, ".on.aws"):
		// <url-id>.lambda-url.<region>.on.aws; no custom domain ends with on.aws.
		return kindFunctionURL
	}
	return kindHTTPAPI
}

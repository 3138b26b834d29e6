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

// ErrUnknownEvent is the error of [Handler] for an event of another kind, such as a scheduled one,
// if it has no handler for other events.
var ErrUnknownEvent = errors.New("awslambda: the event is not from API Gateway, a function URL or a load balancer; pass a lambda.Handler for other events")

// Handler returns a [lambda.Handler] that serves the four kinds of HTTP events with h. It passes
// all other events to other, which [lambda.NewHandler] makes from a function. These are scheduled
// events, WebSocket messages, and API Gateway's requests to authorizers, which look like HTTP
// requests but are none. If other is nil, their error matches [ErrUnknownEvent].
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

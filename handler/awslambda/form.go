package awslambda

import (
	"context"
	"net/http"
)

// form is how one kind of event E is read, and its response R written.
type form[E, R any] struct {
	// request reads an event.
	request func(*E) message
	// answer writes the response to an event.
	answer func(*E, response) R
	// status returns a response's status code.
	status func(*R) int
	// merge adds header fields to a response.
	merge func(*E, *R, http.Header)
	// route returns the gateway's route that matched; nil if it has none.
	route func(*E) string
}

// handle returns the function that serves events with h.
func (f *form[E, R]) handle(h http.Handler) func(context.Context, E) (R, error) {
	mustServe(h)
	return func(ctx context.Context, event E) (R, error) {
		return f.answer(&event, f.serve(ctx, &event, h).response()), nil
	}
}

// serve carries out the request in an event.
func (f *form[E, R]) serve(ctx context.Context, event *E, h http.Handler) *recorder {
	m := f.request(event)
	w := &recorder{header: make(http.Header), head: m.method == http.MethodHead}
	r, err := m.httpRequest(context.WithValue(ctx, eventKey{}, event))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return w
	}
	h.ServeHTTP(w, r)
	return w
}

type eventKey struct{}

// EventFromContext returns the event that is being served, from the context of its
// request, and reports whether it is an E: events.APIGatewayProxyRequest,
// events.APIGatewayV2HTTPRequest, events.LambdaFunctionURLRequest or
// events.ALBTargetGroupRequest. In it are what a request has no room for, such as
// what an authorizer found out. Its maps are shared and must not be changed.
func EventFromContext[E any](ctx context.Context) (E, bool) {
	if event, ok := ctx.Value(eventKey{}).(*E); ok {
		return *event, true
	}
	var none E
	return none, false
}

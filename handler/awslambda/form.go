package awslambda

import (
	"context"
	"net/http"
)

// form reads one kind of event, E, and writes its response, R.
type form[E, R any] struct {
	// request reads an event.
	request func(*E) message
	// response writes the response to an event.
	response func(*E, response) R
	// decodes reports whether the gateway decodes every body in base64; nil if it does.
	decodes func(*E) bool
	// merge adds header fields to a response.
	merge func(*E, *R, http.Header)
	// route returns the gateway's route that matched; nil if it has none.
	route func(*E) string
}

// handle returns the function that serves events with h.
func (f *form[E, R]) handle(h http.Handler) func(context.Context, E) (R, error) {
	h = readable(h)
	return func(ctx context.Context, event E) (R, error) {
		return f.respond(&event, f.serve(ctx, &event, h)), nil
	}
}

// respond returns the response to an event that a handler wrote.
func (f *form[E, R]) respond(event *E, w *recorder) R {
	return f.response(event, w.response(f.decodes == nil || f.decodes(event)))
}

// serve carries out the request in an event.
func (f *form[E, R]) serve(ctx context.Context, event *E, h http.Handler) *recorder {
	m := f.request(event)
	w := &recorder{header: make(http.Header), head: m.method == http.MethodHead}
	r := m.httpRequest(context.WithValue(ctx, eventKey{}, event))
	defer removeFiles(r)
	h.ServeHTTP(w, r)
	return w
}

// readable returns a handler that answers an event that is no request with 400, and passes all
// others to h. It panics if h is nil.
func readable(h http.Handler) http.Handler {
	if h == nil {
		panic("awslambda: the handler is nil; pass one, such as an *http.ServeMux")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := unreadable(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// removeFiles removes the temporary files of a form. Those of an
// invocation that panicked would otherwise fill /tmp until Lambda replaces the environment.
func removeFiles(r *http.Request) {
	if r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll()
	}
}

type eventKey struct{}

// EventFromContext returns the event of a request, from the request's context. E is
// events.APIGatewayProxyRequest, events.APIGatewayV2HTTPRequest, events.LambdaFunctionURLRequest or
// events.ALBTargetGroupRequest. It reports false if the event is not an E.
//
// Use it for what a request cannot hold, such as the result of an authorizer. The maps of the event
// are shared and must not be changed.
func EventFromContext[E any](ctx context.Context) (E, bool) {
	if event, ok := ctx.Value(eventKey{}).(*E); ok {
		return *event, true
	}
	var none E
	return none, false
}

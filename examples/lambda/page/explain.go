package page

import (
	"bytes"
	"net/http"
	"strings"
)

// Explain shows people the page instead of an error of the middleware around it: it says what
// happened and when to try again. Next serves the page behind a limiter. Clients that do not
// accept HTML get the response of next unchanged.
func Explain(next http.Handler) http.Handler {
	d := newDocument(embedded)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			w = &explainer{ResponseWriter: w, document: d}
		}
		next.ServeHTTP(w, r)
	})
}

// explainer replaces the body of an error by the page.
type explainer struct {
	http.ResponseWriter
	document document
	replaced bool // the rest of the error's body is dropped
}

func (e *explainer) WriteHeader(status int) {
	if e.Header().Get("Content-Type") != "application/problem+json" { // the middleware's, not the page's own
		e.ResponseWriter.WriteHeader(status)
		return
	}
	e.replaced = true
	e.document.setHeaders(e.Header())
	e.ResponseWriter.WriteHeader(status)
	text := "<p" + notice + ">" + explain(status, e.Header().Get("Retry-After")) + "</p>"
	_, _ = e.ResponseWriter.Write(bytes.Replace(e.document.html, empty, []byte(text), 1))
}

func (e *explainer) Write(body []byte) (int, error) {
	if e.replaced {
		return len(body), nil
	}
	return e.ResponseWriter.Write(body)
}

// notice has the attributes of the element for the explanation, which is empty and hidden in the page.
const notice = ` id="notice" class="card" role="alert"`

var empty = []byte("<p" + notice + " hidden></p>")

// explain returns what happened, as HTML. The script of the page replaces the text of the element
// "again" by its data-over as soon as a visit would be answered.
func explain(status int, retryAfter string) string {
	var what, over string
	switch status {
	case http.StatusTooManyRequests:
		what = "You opened this page too often, so the limit <code>page</code> refused this visit."
		over = "It has room again."
	case http.StatusServiceUnavailable:
		what = "The server could not decide whether to answer this visit, because its database failed."
		over = "The database works again."
	default:
		return "The server cannot limit this visit. Its log has the reason. Trying again does not help until that is fixed."
	}
	return "<b>" + what + `</b> <span id="again" data-over="` + over + `"><a href="">Try again</a> in ` + retryAfter + " s.</span>"
}

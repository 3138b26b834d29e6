package awslambda

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sqlimit/limiter/handler/internal/field"
)

// recorder is the http.ResponseWriter that handlers get. It does as that of
// net/http does, but keeps the response.
type recorder struct {
	header http.Header // the handler's
	sent   http.Header // as it was when the status was written
	status int         // 0: not written yet
	head   bool        // the request's method is HEAD
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header { return w.header }

// WriteHeader takes the first status that is final; 1xx cannot be sent in Lambda.
func (w *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("awslambda: a handler wrote status %d; write 100 to 999", status))
	}
	if w.status == 0 && status >= 200 {
		w.status, w.sent = status, w.header.Clone()
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	if !w.mayWrite() {
		return 0, http.ErrBodyNotAllowed
	}
	return w.body.Write(p)
}

func (w *recorder) WriteString(s string) (int, error) {
	if !w.mayWrite() {
		return 0, http.ErrBodyNotAllowed
	}
	return w.body.WriteString(s)
}

// Flush writes the status, if need be; nothing can be sent before the end.
func (w *recorder) Flush() { w.writeStatus() }

func (w *recorder) writeStatus() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
}

// mayWrite writes the status, if need be, and reports whether a body may follow.
func (w *recorder) mayWrite() bool {
	w.writeStatus()
	return w.status != http.StatusNoContent && w.status != http.StatusNotModified
}

// response is a response in a form that all events share.
type response struct {
	status int
	header http.Header // without empty fields
	body   string
	base64 bool
}

// response returns what the handler wrote. Whether the gateway decodes every body in
// base64 is for the caller to say.
func (w *recorder) response(decodes bool) response {
	w.writeStatus()
	r := response{status: w.status, header: make(http.Header, len(w.sent)+1)}
	for name, lines := range w.sent {
		if len(lines) > 0 && field.IsName(name) && !slices.Contains(ofConnections, name) {
			r.header[name] = cleaned(lines)
		}
	}
	body := w.body.Bytes()
	_, typed := w.sent["Content-Type"] // nil is a way to have none
	encoding := r.header.Get("Content-Encoding")
	if !typed && encoding == "" && len(body) > 0 {
		r.header.Set("Content-Type", http.DetectContentType(body))
	}
	if w.status == http.StatusNotModified {
		r.header.Del("Content-Type") // as net/http does
	}
	if w.head {
		return r // of which Content-Length is the handler's word
	}
	r.header.Del("Content-Length") // counted again when sent
	if len(body) == 0 {
		return r
	}
	text := (encoding == "" || strings.EqualFold(encoding, "identity")) && utf8.Valid(body)
	if text && !shorterInBase64(body, decodes) {
		r.body = string(body)
	} else {
		r.body, r.base64 = base64.StdEncoding.EncodeToString(body), true
	}
	return r
}

// shorterInBase64 reports whether a body of UTF-8 is shorter in base64 than as a JSON
// string: encoding/json turns a NUL into six bytes, and a quote into two. If the gateway
// does not decode every body, only one with control characters is not sent as text.
func shorterInBase64(body []byte, decodes bool) bool {
	binary := false
	quoted := len(body) + 3*(bytes.Count(body, []byte("\u2028"))+bytes.Count(body, []byte("\u2029")))
	for _, c := range body {
		switch {
		case c == '"', c == '\\', '\b' <= c && c <= '\r' && c != '\v':
			quoted++ // a backslash in front
		case c < ' ':
			quoted += 5
			binary = binary || c != '\x1b' // text for a terminal has escapes
		}
	}
	return (decodes || binary) && base64.StdEncoding.EncodedLen(len(body)) < quoted
}

// ofConnections are header fields of one connection, and the gateway's is not ours.
var ofConnections = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Trailer", "Transfer-Encoding", "Upgrade"}

// cleaned returns header lines as net/http sends them: nothing in them ends a line.
func cleaned(lines []string) []string {
	clean := make([]string, len(lines))
	for i, line := range lines {
		clean[i] = strings.Trim(newlines.Replace(line), " \t")
	}
	return clean
}

var newlines = strings.NewReplacer("\n", " ", "\r", " ")

// cookieField is the one field of which lines cannot be joined.
const cookieField = "Set-Cookie"

// joined returns the header with one value for each name, Set-Cookie left out.
func (r *response) joined() map[string]string {
	values := make(map[string]string, len(r.header))
	for name, lines := range r.header {
		if name != cookieField {
			values[name] = strings.Join(lines, ", ")
		}
	}
	return values
}

package awslambda

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// message is a request in a form that all events share.
type message struct {
	method    string
	path      string
	unescaped bool   // the gateway has unescaped the path
	query     string // escaped
	header    http.Header
	host      string // where the header has none
	addr      string
	proto     string
	body      string
	base64    bool
}

var (
	errPath = errors.New("the path has an invalid escape")
	errBody = errors.New("the body is not valid base64, although the event says that it is")
)

// httpRequest returns the request as an http.Server would have made it. If the path or the
// body cannot be decoded, the request has the path as it was sent, or no body, and
// unreadable returns the error.
func (m *message) httpRequest(ctx context.Context) *http.Request {
	u, err := m.url()
	r := &http.Request{
		Method:     cmp.Or(m.method, http.MethodGet),
		URL:        u,
		Proto:      m.proto,
		Header:     m.header,
		Body:       http.NoBody,
		Host:       cmp.Or(m.header.Get("Host"), m.host),
		RemoteAddr: m.addr,
		RequestURI: u.RequestURI(),
	}
	m.header.Del("Host") // as a server has it
	var ok bool
	if r.ProtoMajor, r.ProtoMinor, ok = http.ParseHTTPVersion(m.proto); !ok {
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	}
	body := m.body
	if m.base64 {
		decoded, decodeErr := base64.StdEncoding.DecodeString(body)
		if decodeErr != nil {
			decoded, err = nil, errBody
		}
		body = string(decoded)
	}
	if body != "" {
		r.Body = io.NopCloser(strings.NewReader(body))
		r.ContentLength = int64(len(body))
	}
	if err != nil {
		ctx = context.WithValue(ctx, unreadableKey{}, err)
	}
	return r.WithContext(ctx)
}

type unreadableKey struct{}

// unreadable returns why an event is no request, or nil. The error holds nothing of it.
func unreadable(r *http.Request) error {
	err, _ := r.Context().Value(unreadableKey{}).(error)
	return err
}

// url returns path and query. The escaped form of a path is kept if it is not the
// usual one, as url.Parse does. A path that the gateway has unescaped must not be
// unescaped again: what its routes and authorizers see as "/%61dmin" would become
// "/admin" behind them. A path that cannot be unescaped is kept as it is.
func (m *message) url() (*url.URL, error) {
	path := m.path
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	u := &url.URL{Path: path, RawQuery: m.query}
	if m.unescaped {
		return u, nil
	}
	unescaped, err := url.PathUnescape(path)
	if err != nil {
		return u, errPath
	}
	u.Path = unescaped
	if u.EscapedPath() != path {
		u.RawPath = path
	}
	return u, nil
}

// headerOf returns the header that an event has as lists of lines, otherwise as single lines. Names
// that differ only in case, which no gateway sends, come in a fixed order.
func headerOf(lists map[string][]string, lines map[string]string) http.Header {
	h := make(http.Header, max(len(lists), len(lines)))
	for name, list := range sorted(lists, lines) {
		name = http.CanonicalHeaderKey(name)
		h[name] = append(h[name], list...)
	}
	return h
}

// sorted yields what an event has as lists of values, otherwise as single values, in the order of
// their names.
func sorted(lists map[string][]string, values map[string]string) iter.Seq2[string, []string] {
	if len(lists) == 0 {
		lists = make(map[string][]string, len(values))
		for name, value := range values {
			lists[name] = []string{value}
		}
	}
	return func(yield func(string, []string) bool) {
		for _, name := range slices.Sorted(maps.Keys(lists)) {
			if !yield(name, lists[name]) {
				return
			}
		}
	}
}

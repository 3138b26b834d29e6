package awslambda_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
	"github.com/sqlimit/limiter/internal/testenv"
)

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	header := make(map[string]string)
	for name, lines := range r.Header {
		if !strings.HasPrefix(name, "X-Forwarded-") && name != "Content-Length" {
			header[name] = strings.Join(lines, ",")
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"method": r.Method, "path": r.URL.Path, "escaped": r.URL.EscapedPath(), "raw": r.URL.RawPath,
		"uri": r.RequestURI, "query": r.URL.Query(), "host": r.Host, "header": header, "failed": err != nil,
		"body": body, "length": r.ContentLength, "proto": r.Proto, "major": r.ProtoMajor, "minor": r.ProtoMinor,
	})
}

// serverReply is what a client gets of a handler behind an http.Server.
func serverReply(t *testing.T, h http.Handler, r *http.Request) reply {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	at, err := url.Parse(server.URL)
	must(t, err)
	r.Host, r.URL.Scheme, r.URL.Host = "api.example.com", at.Scheme, at.Host
	res, err := server.Client().Transport.RoundTrip(r)
	must(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(t, err)
	return reply{status: res.StatusCode, header: res.Header, body: string(body)}
}

// comparable returns a reply without what gateways do as they like.
func (a reply) comparable() reply {
	h := make(http.Header)
	for name, lines := range a.header {
		switch name {
		case "Content-Length", "Date", "Connection":
		case "Set-Cookie":
			h[name] = slices.Sorted(slices.Values(lines))
		default:
			h[name] = []string{strings.Join(lines, ", ")}
		}
	}
	a.header = h
	return a
}

func TestRequestsEqualThoseOfAServer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, method, target, body string
		several                    bool // lines of a header, or parameters of a name
		escaped                    bool // the path, in a way that HTTP APIs do not keep
	}{
		{name: "a page", method: "GET", target: "/"},
		{name: "a query", method: "GET", target: "/search?flag=&q=a+b%26c&z=%C3%A4"},
		{name: "a repeated parameter", method: "GET", target: "/search?q=1&q=2", several: true},
		{name: "an escaped path", method: "GET", target: "/a%20b/100%25/%C3%A4", body: ""},
		{name: "an escaped slash", method: "GET", target: "/a%2Fb/c%3Fd", escaped: true},
		{name: "an escape of a letter", method: "GET", target: "/%61dmin", escaped: true},
		{name: "two slashes", method: "GET", target: "//a//b"},
		{name: "a form", method: "POST", target: "/form", body: "name=value&name=other"},
		{name: "JSON", method: "PATCH", target: "/doc/1", body: `{"message":"caffè <b>"}`},
		{name: "a binary body", method: "PUT", target: "/blob", body: "\x89PNG\r\n\x1a\n\x00\xff"},
		{name: "a body of a request that has none usually", method: "DELETE", target: "/doc/1", body: "really"},
	}
	for i, tt := range tests {
		for _, g := range gateways() {
			decodes := strings.HasPrefix(g.name, "HTTP API")
			if tt.several && g.single || tt.escaped && decodes {
				continue // it does not arrive; what does arrive, other tests say
			}
			t.Run(tt.name+"/"+g.name, func(t *testing.T) {
				send := func() *http.Request {
					r := request(t, tt.method, tt.target, tt.body)
					r.Header.Set("Accept-Encoding", "identity")
					r.Header.Set("User-Agent", "test")
					if n := i % 3; n > 0 {
						r.Header.Set("Cookie", strings.Join([]string{"session=abc", `theme="dark"`}[:n], "; "))
					}
					r.Header.Set("Content-Type", "text/plain")
					r.Header["X-Probe"] = []string{"first", "second"}
					if g.single {
						r.Header.Set("X-Probe", "second")
					}
					return r
				}
				want := serverReply(t, http.HandlerFunc(echo), send()).comparable()
				for way, h := range map[string]lambda.Handler{
					"behind the gateway":        awslambda.Handler(http.HandlerFunc(echo), nil),
					"by the adapter of its own": g.plain(http.HandlerFunc(echo)),
				} {
					testenv.Equal(t, g.send(t, h, send()).comparable(), want, way)
				}
			})
		}
	}
}

// says returns a handler that adds header fields, given as names and values, and writes a body.
func says(body string, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for f := range slices.Chunk(fields, 2) {
			w.Header().Add(f[0], f[1])
		}
		_, _ = io.WriteString(w, body)
	}
}

// bodyless returns a handler that writes a status without a body, and then one.
func bodyless(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(status)
		_, err := w.Write([]byte("x"))
		if _, err2 := io.WriteString(w, "x"); err != http.ErrBodyNotAllowed || err2 != http.ErrBodyNotAllowed {
			panic("a body was allowed")
		}
	}
}

func TestResponsesEqualThoseOfAServer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		method string
		h      http.HandlerFunc
	}{
		{name: "a page in pieces", h: func(w http.ResponseWriter, r *http.Request) {
			says("<!DOCTYPE")(w, r)
			says(" html><p>&amp;</p>\u2028", "X-Late", "1")(w, r)
		}},
		{name: "a picture", h: says("\x89PNG\r\n\x1a\n\x00\xff")},
		{name: "compressed", h: says("it looks like text", "Content-Encoding", "x-none")},
		{name: "no type wanted", h: func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			says("hello")(w, r)
		}},
		{name: "an early hint", h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusContinue)
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(999)
			says("hello")(w, r)
		}},
		{name: "headers that come late", h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Early", "1")
			w.WriteHeader(http.StatusCreated)
			says("", "X-Early", "2", "X-Late", "1")(w, r)
		}},
		{name: "headers that come after a flush", h: func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
			w.Header().Set("X-Late", "1")
			w.WriteHeader(http.StatusTeapot)
		}},
		{name: "several lines", h: func(w http.ResponseWriter, r *http.Request) {
			w.Header()["X-None"] = []string{}
			says("x", "Vary", "Origin", "Vary", "Accept")(w, r)
		}},
		{name: "cookies", h: says("", "Set-Cookie", "a=1; Path=/; HttpOnly", "Set-Cookie", "b=1", "Set-Cookie", "c=1", "Set-Cookie", "d=1",
			"Set-Cookie", "e=1", "Set-Cookie", "f=1", "Set-Cookie", "g=1", "Set-Cookie", "h=1", "Set-Cookie", "i=1")},
		{name: "lines in a header", h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Said", " a\r\nSet-Cookie: b=c ")
			w.Header()["Not A Name"] = []string{"x"}
			w.Header()["X-Evil: 1\r\nX-More"] = []string{"x"}
		}},
		{name: "a body where none may be", h: bodyless(http.StatusNotModified)},
		{name: "no content", h: bodyless(http.StatusNoContent)},
		{name: "a head", method: "HEAD", h: says("<html>")},
		{name: "a file", h: func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "testdata/rest.json") }},
		{name: "a mux's redirect", h: func() http.HandlerFunc {
			mux := http.NewServeMux()
			mux.HandleFunc("/page/", says(""))
			return mux.ServeHTTP
		}()},
	}
	for _, tt := range tests {
		for _, g := range gateways() {
			t.Run(tt.name+"/"+g.name, func(t *testing.T) {
				send := func() *http.Request { return request(t, cmp.Or(tt.method, http.MethodGet), "/page", "") }
				want := serverReply(t, tt.h, send()).comparable()
				testenv.Equal(t, g.send(t, awslambda.Handler(tt.h, nil), send()).comparable(), want, "from the gateway")
			})
		}
	}
	for _, g := range gateways() { // fields of the connection, which the gateway adds
		h := says("", "Connection", "x", "Transfer-Encoding", "x", "Trailer", "x", "Upgrade", "x", "Keep-Alive", "x", "X-Own", "x", "Content-Length", "9")
		for method, want := range map[string]http.Header{"GET": {"X-Own": {"x"}}, "HEAD": {"X-Own": {"x"}, "Content-Length": {"9"}}} {
			testenv.Equal(t, g.send(t, awslambda.Handler(h, nil), request(t, method, "/", "")).header, want, g.name, method)
		}
	}
}

// FuzzShorterForm compares what is chosen with what encoding/json makes of a body. Lambda takes 6
// MB of JSON, where a NUL is six bytes as text and 4/3 of a byte in base64.
func FuzzShorterForm(f *testing.F) {
	for _, s := range []string{
		"", "a", "\x00", "\b\f\n\r\t\x7f", `"\`, "<b>&", "\u2028", "\u2029", "é\U0001f600", "\xe2\x80", "\xff", "\x1b\x0b", "\r\n", `",`,
		"\x1b[1m", "RIFF\x00\x01\x02\x00", `{"message":"hello, world"}`, strings.Repeat("a", 100) + "\x00\x00",
	} {
		f.Add(s)
		f.Add(strings.Repeat(s, 10))
	}
	f.Fuzz(func(t *testing.T, body string) {
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		must(t, enc.Encode(body))
		quoted := bytes.TrimSuffix(text.Bytes(), []byte("\n"))
		shorter := base64.StdEncoding.EncodedLen(len(body)) < len(quoted)-len(`""`)
		// A REST API without binary media types would not decode text.
		binary := strings.ContainsFunc(body, func(r rune) bool { return r < ' ' && !strings.ContainsRune("\b\t\n\f\r\x1b", r) })
		for _, g := range gateways() {
			for encoding, encoded := range map[string]bool{"": false, "Identity": false, "gzip": true} {
				h := awslambda.Handler(says(body, "Content-Encoding", encoding), nil)
				out, err := h.Invoke(t.Context(), g.payload(t, request(t, "GET", "/", "")))
				must(t, err)
				var res lambdaResponse
				must(t, json.Unmarshal(out, &res))
				want := body != "" && (encoded || shorter && (binary || g.name != "REST API") || !utf8.ValidString(body))
				if a := g.read(t, out); res.IsBase64Encoded != want || a.body != body || !want && body != "" && !bytes.Contains(out, quoted) {
					t.Errorf("%s: in base64: %v, want %v; it arrives: %v; sent as %s", g.name, res.IsBase64Encoded, want, a.body == body, out)
				}
			}
		}
	})
}

func TestUploadsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	files := func() int {
		entries, err := os.ReadDir(dir)
		must(t, err)
		return len(entries)
	}
	const body = "--b\r\nContent-Disposition: form-data; name=file; filename=a.jpg\r\n\r\n\xff\xd8 a photo\r\n--b--\r\n"
	written := 0
	parse := func(r *http.Request) {
		if err := r.ParseMultipartForm(0); err != nil { // 0: every file goes to TMPDIR
			t.Error(err)
		}
		written = files()
	}
	upload := func(panics bool) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) {
			if parse(r); panics {
				panic("a bug")
			}
		}
	}
	ofForm := func(r *http.Request) (string, error) {
		parse(r)
		return "all", nil
	}
	bug := func(context.Context) (int, map[string]string, error) { panic("a bug") }
	for _, g := range gateways() {
		limit := handler.New(newLimiter(t, 9), handler.ClientIP())
		for name, h := range map[string]lambda.Handler{
			"a handler":                         awslambda.Handler(upload(false), nil),
			"a limited handler":                 awslambda.Handler(limit(upload(false)), nil),
			"a handler that panics":             awslambda.Handler(upload(true), nil),
			"a limited handler that panics":     awslambda.Handler(limit(upload(true)), nil),
			"the adapter of one gateway":        g.plain(upload(false)),
			"a function with a key of the form": g.limit(newLimiter(t, 9), ofForm)(ok),
			"a function that panics":            g.limit(newLimiter(t, 9), ofForm)(bug),
		} {
			written = 0
			r := request(t, "POST", "/upload", body)
			r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
			payload := g.payload(t, r)
			func() {
				defer func() { _ = recover() }()
				_, _ = h.Invoke(t.Context(), payload)
			}()
			testenv.Equal(t, []int{written, files()}, []int{1, 0}, g.name, name, "files in TMPDIR, during the request and after it")
		}
	}
}

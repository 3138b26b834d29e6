package awslambda_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
)

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	header := make(map[string]string)
	for name, lines := range r.Header {
		if !strings.HasPrefix(name, "X-Forwarded-") && name != "Content-Length" {
			header[name] = strings.Join(lines, ",")
		}
	}
	var cookies []string
	for _, c := range r.Cookies() {
		cookies = append(cookies, c.String())
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"method": r.Method, "path": r.URL.Path, "escaped": r.URL.EscapedPath(), "raw": r.URL.RawPath,
		"uri": r.RequestURI, "query": r.URL.Query(), "host": r.Host, "header": header, "cookies": cookies,
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
	for _, tt := range tests {
		for _, g := range gateways() {
			decodes := strings.HasPrefix(g.name, "HTTP API")
			if tt.several && g.single || tt.escaped && decodes {
				continue // it does not arrive; what does arrive, other tests say
			}
			t.Run(tt.name+"/"+g.name, func(t *testing.T) {
				t.Parallel()
				send := func() *http.Request {
					r := request(t, tt.method, tt.target, tt.body)
					r.Header.Set("Accept-Encoding", "identity")
					r.Header.Set("User-Agent", "test")
					r.Header.Set("Cookie", `session=abc; theme="dark"`)
					r.Header.Set("Content-Type", "text/plain")
					r.Header["X-Probe"] = []string{"first", "second"}
					if g.single {
						r.Header.Set("X-Probe", "second")
					}
					return r
				}
				want := serverReply(t, http.HandlerFunc(echo), send()).comparable()
				got := g.send(t, awslambda.Handler(http.HandlerFunc(echo), nil), send()).comparable()
				if !reflect.DeepEqual(got, want) {
					t.Errorf("behind the gateway\n%v\nbehind a server\n%v", got, want)
				}
				alone := g.send(t, g.plain(http.HandlerFunc(echo)), send()).comparable()
				if !reflect.DeepEqual(alone, want) {
					t.Errorf("by the adapter of its own\n%v\nbehind a server\n%v", alone, want)
				}
			})
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
		{name: "a page in pieces", h: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<!DOCTYPE")
			_, _ = io.WriteString(w, " html><p>&amp;</p>\u2028")
		}},
		{name: "a picture", h: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x89PNG\r\n\x1a\n\x00\xff")) }},
		{name: "compressed", h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "x-none")
			_, _ = io.WriteString(w, "it looks like text")
		}},
		{name: "no type wanted", h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "hello")
		}},
		{name: "an early hint", h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, "hello")
		}},
		{name: "headers that come late", h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Early", "1")
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("X-Early", "2")
			w.Header().Set("X-Late", "1")
		}},
		{name: "headers that come after a flush", h: func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
			w.Header().Set("X-Late", "1")
			w.WriteHeader(http.StatusTeapot)
		}},
		{name: "several lines", h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Vary"] = []string{"Origin", "Accept"}
			w.Header()["X-None"] = []string{}
		}},
		{name: "cookies", h: func(w http.ResponseWriter, _ *http.Request) {
			for _, name := range []string{"a", "b", "c", "d"} {
				http.SetCookie(w, &http.Cookie{Name: name, Value: "1", Path: "/", HttpOnly: true})
			}
		}},
		{name: "lines in a header", h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Said", " a\r\nSet-Cookie: b=c ")
			w.Header()["Not A Name"] = []string{"x"}
			w.Header()["X-Evil: 1\r\nX-More"] = []string{"x"}
		}},
		{name: "a body where none may be", h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusNotModified)
			if _, err := w.Write([]byte("x")); err != http.ErrBodyNotAllowed {
				panic("a body was allowed")
			}
		}},
		{name: "no content", h: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			if _, err := io.WriteString(w, "x"); err != http.ErrBodyNotAllowed {
				panic("a body was allowed")
			}
		}},
		{name: "a head", method: "HEAD", h: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }},
		{name: "a file", h: func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "testdata/rest.json") }},
		{name: "a mux's redirect", h: func() http.HandlerFunc {
			mux := http.NewServeMux()
			mux.HandleFunc("/page/", func(http.ResponseWriter, *http.Request) {})
			return mux.ServeHTTP
		}()},
	}
	for _, tt := range tests {
		for _, g := range gateways() {
			t.Run(tt.name+"/"+g.name, func(t *testing.T) {
				t.Parallel()
				send := func() *http.Request { return request(t, cmp.Or(tt.method, http.MethodGet), "/page", "") }
				want := serverReply(t, tt.h, send()).comparable()
				got := g.send(t, awslambda.Handler(tt.h, nil), send()).comparable()
				if !reflect.DeepEqual(got, want) {
					t.Errorf("from the gateway\n%v\nfrom a server\n%v", got, want)
				}
			})
		}
	}
}

func TestFieldsOfConnections(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method string
		set    []string
		want   http.Header
	}{
		{"HEAD", []string{"Content-Length"}, http.Header{"Content-Length": {"1234"}}},
		{"GET", []string{"Connection", "Transfer-Encoding", "Trailer", "Upgrade", "Keep-Alive", "X-Own"}, http.Header{"X-Own": {"1234"}}},
	} {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for _, name := range tt.set {
				w.Header().Set(name, "1234")
			}
		})
		for _, g := range gateways() {
			got := g.send(t, awslambda.Handler(h, nil), request(t, tt.method, "/", ""))
			if !reflect.DeepEqual(got.header, tt.want) || got.body != "" {
				t.Errorf("%s, %s: %+v, want the header %v and no body", g.name, tt.method, got, tt.want)
			}
		}
	}
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

// Lambda takes 6 MB of JSON, where a NUL is six bytes as text and 4/3 of a byte in base64.
func TestBodiesAreSentInTheShorterForm(t *testing.T) {
	t.Parallel()
	const n = 1 << 15
	quotes := `["` + strings.Repeat(`","`, n/3) + `"]`
	tests := []struct {
		name, body string
		encoded    bool
		text       bool // a REST API without binary media types would not decode it
	}{
		{"text", strings.Repeat("caffè <b>&\n", n/12), false, true},
		{"JSON", strings.Repeat(`{"message":"hello, world"}`, n/26), false, true},
		{"JSON of many quotes", quotes, true, true},
		{"lines that are empty", strings.Repeat("\r\n", n/2), true, true},
		{"NULs", strings.Repeat("\x00", n), true, false},
		{"a file that is UTF-8 by chance", strings.Repeat("RIFF\x00\x01\x02\x00", n/8), true, false},
		{"colors of a terminal", strings.Repeat("\x1b[1m", n/4), true, true},
		{"a page with a few NULs", strings.Repeat("a", n) + "\x00\x00", false, false},
		{"a short body of NULs", "\x00\x00", true, false},
		{"line separators", strings.Repeat("\u2028", n/3), true, true},
		{"no UTF-8", strings.Repeat("\xff", n), true, false},
	}
	for _, tt := range tests {
		for _, g := range gateways() {
			h := awslambda.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.body) }), nil)
			out, err := h.Invoke(t.Context(), g.payload(t, request(t, "GET", "/", "")))
			must(t, err)
			var res lambdaResponse
			must(t, json.Unmarshal(out, &res))
			want := tt.encoded && (!tt.text || g.name != "REST API")
			if a := g.read(t, out); res.IsBase64Encoded != want || a.body != tt.body {
				t.Errorf("%s, %s: in base64: %v, want %v; it arrives: %v", g.name, tt.name, res.IsBase64Encoded, want, a.body == tt.body)
			}
			if strings.Contains(tt.body, "<b>&") && !bytes.Contains(out, []byte("<b>&")) {
				t.Errorf("%s, %s: HTML is escaped", g.name, tt.name)
			}
			if limit := 4*len(tt.body)/3 + 1000; want && len(out) > limit {
				t.Errorf("%s, %s: %d bytes became %d, want at most %d", g.name, tt.name, len(tt.body), len(out), limit)
			}
		}
	}
}

// FuzzShorterForm compares what is chosen with what encoding/json makes of a body.
func FuzzShorterForm(f *testing.F) {
	for _, s := range []string{"", "a", "\x00", "\b\f\n\r\t\x7f", `"\`, "<&>", "\u2028\u2029", "é\U0001f600", "\xe2\x80", "\x1b\x0b"} {
		f.Add(s)
		f.Add(strings.Repeat(s, 10))
	}
	f.Fuzz(func(t *testing.T, body string) {
		send := func(encoding string) (res lambdaResponse) {
			h := awslambda.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "x")
				w.Header().Set("Content-Encoding", encoding)
				_, _ = io.WriteString(w, body)
			}), nil)
			out, err := h.Invoke(t.Context(), recorded(t, "httpapi"))
			must(t, err)
			must(t, json.Unmarshal(out, &res))
			return res
		}
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		must(t, enc.Encode(body))
		res, always := send(""), send("gzip") // what is compressed is always in base64
		shorter := len(always.Body) < text.Len()-len("\"\"\n")
		if valid := strings.ToValidUTF8(body, "") == body; valid && res.IsBase64Encoded != shorter {
			t.Errorf("in base64: %v; %d bytes in base64, %d as text", res.IsBase64Encoded, len(always.Body), text.Len()-3)
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
	upload := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parse(r) })
	breaks := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		parse(r)
		panic("a bug")
	})
	ofForm := func(r *http.Request) (string, error) {
		parse(r)
		return "all", nil
	}
	for _, g := range gateways() {
		limit := handler.New(newLimiter(t, 9), handler.ClientIP())
		for name, h := range map[string]lambda.Handler{
			"a handler":                         awslambda.Handler(upload, nil),
			"a limited handler":                 awslambda.Handler(limit(upload), nil),
			"a handler that panics":             awslambda.Handler(breaks, nil),
			"a limited handler that panics":     awslambda.Handler(limit(breaks), nil),
			"the adapter of one gateway":        g.plain(upload),
			"a function with a key of the form": g.limit(newLimiter(t, 9), ofForm)(ok),
			"a function that panics": g.limit(newLimiter(t, 9), ofForm)(func(context.Context) (int, map[string]string, error) {
				panic("a bug")
			}),
		} {
			written = 0
			r := request(t, "POST", "/upload", body)
			r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
			payload := g.payload(t, r)
			panics(func() { _, _ = h.Invoke(t.Context(), payload) })
			if left := files(); written != 1 || left != 0 {
				t.Errorf("%s, %s: of %d files in TMPDIR %d are left; want none of 1", g.name, name, written, left)
			}
		}
	}
}

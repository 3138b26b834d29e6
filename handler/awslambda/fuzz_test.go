package awslambda_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
)

// FuzzInvoke asks for an error or a response that a gateway can send, whatever comes.
func FuzzInvoke(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no recorded events:", err)
	}
	for _, file := range files {
		payload, err := os.ReadFile(file)
		must(f, err)
		f.Add(payload)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/orders/{rest...}", echo)
	mux.HandleFunc("/upload", echo)
	h := awslambda.Handler(handler.New(newLimiter(f, 1<<30), handler.ClientIP())(mux), nil)
	f.Fuzz(func(t *testing.T, payload []byte) {
		out, err := h.Invoke(t.Context(), payload)
		if err != nil {
			if out != nil || !strings.HasPrefix(err.Error(), "awslambda: ") {
				t.Errorf("%s, %v", out, err)
			}
			return
		}
		var res lambdaResponse
		if err := json.Unmarshal(out, &res); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if res.StatusCode < 200 || res.StatusCode > 599 || len(res.Headers)+len(res.MultiValueHeaders) == 0 {
			t.Errorf("the response is %s", out)
		}
		if _, err := base64.StdEncoding.DecodeString(res.Body); res.IsBase64Encoded && err != nil {
			t.Errorf("the body %q: %v", res.Body, err)
		}
		for name, value := range res.Headers {
			if strings.ContainsAny(name+value, "\r\n") {
				t.Errorf("the field %q: %q has lines", name, value)
			}
		}
	})
}

// FuzzRequest sends what clients can choose through every gateway: the path arrives
// whole, and the key stays that of the client's address.
func FuzzRequest(f *testing.F) {
	f.Add("/", "X-Forwarded-For", "203.0.113.1", "body")
	f.Add("/a%2Fb/%61/100%25", "x-forwarded-for", ",", "\xff")
	f.Add("//a/../b?c", "Host", "[::1", "")
	f.Add("/%E4", "Cookie", "a=b; c", "{}")
	f.Add("/\u00e4", "X-Amzn-Trace-Id", "\r\n", "")
	f.Fuzz(func(t *testing.T, path, name, value, body string) {
		path, _, _ = strings.Cut(path, "?")
		sent, err := url.ParseRequestURI(path)
		if err != nil || !strings.HasPrefix(path, "/") || !utf8.ValidString(strings.Join([]string{sent.Path, sent.RawPath, name, value}, " ")) { // bytes of two may make a character
			t.Skip("no HTTP request")
		}
		for _, g := range gateways() {
			var key, host string
			var got url.URL
			var read []byte
			h := awslambda.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				host, got = r.Host, *r.URL
				key, err = handler.ClientIP()(r)
				read, _ = io.ReadAll(r.Body)
				if again, err := url.ParseRequestURI(r.RequestURI); err != nil || again.Path != sent.Path {
					t.Errorf("%s: RequestURI is %q, of the path %q: %v", g.name, r.RequestURI, sent.Path, err)
				}
			}), nil)
			r := &http.Request{Method: http.MethodPost, URL: sent, Host: "api.example.com", Header: make(http.Header)}
			if !strings.EqualFold(name, "Host") {
				r.Header.Add(name, value)
			}
			r.Body = io.NopCloser(strings.NewReader(body))
			if _, err := h.Invoke(t.Context(), g.payload(t, r)); err != nil {
				t.Fatalf("%s: %v", g.name, err)
			}
			if err != nil || key != client || host != "api.example.com" {
				t.Errorf("%s: the key is %q, %v, the host %q", g.name, key, err, host)
			}
			if got.Path != sent.Path || string(read) != body {
				t.Errorf("%s: the path is %q, want %q; the body %q, want %q", g.name, got.Path, sent.Path, read, body)
			}
			if !strings.HasPrefix(g.name, "HTTP API") && got.EscapedPath() != sent.EscapedPath() {
				t.Errorf("%s: the escaped path is %q, want %q", g.name, got.EscapedPath(), sent.EscapedPath())
			}
		}
	})
}

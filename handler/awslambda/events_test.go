package awslambda_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
	"github.com/sqlimit/limiter/internal/testenv"
)

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	payload, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	must(t, err)
	return payload
}

// seen serves an event and returns the request that the handler got, and its body.
func seen(t *testing.T, payload []byte) (r *http.Request, body string) {
	t.Helper()
	h := http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
		b, err := io.ReadAll(got.Body)
		if err != nil {
			t.Error(err)
		}
		r, body = got, string(b)
	})
	must(t, testenv.ErrorOf(awslambda.Handler(h, nil).Invoke(t.Context(), payload)))
	if r == nil {
		t.Fatal("the handler was not called")
	}
	return r, body
}

func TestRecordedEvents(t *testing.T) {
	t.Parallel()
	const (
		api     = "a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com"
		escaped = "/orders/space%20value/a%2Fb"
	)
	tests := []struct {
		event, host, addr, key, escaped, uriPath string
		probe, repeat                            []string
	}{
		{"rest", api, "192.0.2.1", "192.0.2.1", escaped, escaped, []string{"first", "second"}, []string{"one", "two"}},
		{"httpapi", api, "192.0.2.1", "192.0.2.1", "", "/orders/space%20value/a/b", []string{"first,second"}, []string{"one", "two"}},
		{"httpapi-format-1.0", api, "192.0.2.1", "192.0.2.1", "", "/orders/space%20value/a/b", []string{"first", "second"}, []string{"one", "two"}},
		{"functionurl", "abcdefghijklmnopqrstuvwxyz012345.lambda-url.eu-central-1.on.aws", "2001:db8:1:2::3", "2001:db8:1:2::/64", escaped, escaped, []string{"first,second"}, []string{"one", "two"}},
		{"alb", "orders-1234567890.eu-central-1.elb.amazonaws.com", "192.0.2.1", "192.0.2.1", escaped, escaped, []string{"second"}, []string{"two"}},
		{"alb-multivalue", "orders-1234567890.eu-central-1.elb.amazonaws.com", "2001:db8:1:2::3", "2001:db8:1:2::/64", escaped, escaped, []string{"first", "second"}, []string{"one", "two"}},
	}
	for _, tt := range tests {
		t.Run(tt.event, func(t *testing.T) {
			r, body := seen(t, recorded(t, tt.event))
			theme, err := r.Cookie("theme")
			must(t, err)
			key, err := handler.ClientIP()(r)
			must(t, err)
			testenv.Equal(t, []string{r.Method, r.Host, r.RemoteAddr, r.Proto, r.URL.Path, r.URL.RawPath, r.RequestURI, theme.Value, body, key, r.Pattern}, []string{
				"POST", tt.host, tt.addr, "HTTP/1.1", "/orders/space value/a/b", tt.escaped, tt.uriPath + "?" + r.URL.RawQuery,
				"dark", `{"message":"caffè"}`, tt.key, "", // a mux has not seen the request
			}, "the request")
			want := map[string][]string{"plus": {"a+b"}, "repeat": tt.repeat, "url": {"https://example.com/?a=b&c"}}
			testenv.Equal(t, map[string][]string(r.URL.Query()), want, "the query")
			testenv.Equal(t, r.Header["X-Probe"], tt.probe, "X-Probe")
			testenv.Equal(t, r.Header["Cookie"], []string{"session=abc123; theme=dark"}, "Cookie")
			if _, ok := r.Header["Host"]; ok || r.ContentLength != int64(len(body)) || !r.ProtoAtLeast(1, 1) {
				t.Errorf("the header is %v, the length %d; a server has no Host there", r.Header, r.ContentLength)
			}
		})
	}
}

func TestHealthCheckOfALoadBalancer(t *testing.T) {
	t.Parallel()
	r, body := seen(t, recorded(t, "alb-health-check"))
	if body != "" || r.Body != http.NoBody || r.ContentLength != 0 || r.RemoteAddr != "" || r.URL.Path != "/health" {
		t.Errorf("%s from %q with the body %q of %d bytes, want /health from nobody without a body", r.URL.Path, r.RemoteAddr, body, r.ContentLength)
	}
	testenv.ErrorIs(t, testenv.ErrorOf(handler.ClientIP()(r)), handler.ErrNoKey)
}

func TestZeroEvents(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+r.RequestURI+" "+r.Proto)
	})
	for _, g := range gateways() {
		testenv.Equal(t, g.answer(t, g.plain(h), []byte("{}")).body, "GET / / HTTP/1.1", g.name)
	}
}

func TestPathsAndQueriesOfEvents(t *testing.T) {
	t.Parallel()
	const path, query = "/orders/space value/a/b", `"rawQueryString": "`
	for _, tt := range []struct{ event, old, new, path, escaped string }{
		// A gateway that has unescaped a path applied its routes and authorizers to that.
		{"httpapi", path, "/%61dmin/100%", "/%61dmin/100%", "/%2561dmin/100%25"},
		{"httpapi-format-1.0", path, "/%61dmin/100%", "/%61dmin/100%", "/%2561dmin/100%25"},
		// The question mark stands in the table of AWS' documentation, though not in its events.
		{"httpapi", query, query + "?", path, "/orders/space%20value/a/b"},
		{"functionurl", query, query + "?", path, "/orders/space%20value/a%2Fb"},
	} {
		r, _ := seen(t, bytes.ReplaceAll(recorded(t, tt.event), []byte(tt.old), []byte(tt.new)))
		testenv.Equal(t, []string{r.URL.Path, r.URL.EscapedPath(), r.URL.Query().Get("plus")}, []string{tt.path, tt.escaped, "a+b"}, tt.event)
	}
}

func TestOtherEvents(t *testing.T) {
	t.Parallel()
	payloads := []string{
		``, `{`, `null`, `"text"`, `[]`, `{}`, `{"httpMethod":"GET"}`, `{"httpMethod":"GET","requestContext":{}}`,
		`{"version":"2.0","requestContext":{"http":{}}}`, `{"version":2,"requestContext":{"http":{"method":"GET"}}}`,
		`{"version":"1.0","requestContext":{"http":{"method":"GET"}}}`, `{"requestContext":{"elb":{}}}`,
		`{"messageVersion":"1.0","apiPath":"/","httpMethod":"GET","parameters":[]}`,
	}
	for _, event := range []string{"other-scheduled", "other-websocket", "other-authorizer", "other-authorizer-2.0"} {
		payloads = append(payloads, string(recorded(t, event)))
	}
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("an event was served as a request") })
	for _, payload := range payloads {
		if out, err := awslambda.Handler(h, nil).Invoke(t.Context(), []byte(payload)); !errors.Is(err, awslambda.ErrUnknownEvent) {
			t.Errorf("%s: %s, %v; want ErrUnknownEvent", payload, out, err)
		}
		other := otherHandler{errors.New(payload)}
		if out, err := awslambda.Handler(h, other).Invoke(t.Context(), []byte(payload)); string(out) != payload || err != other.err {
			t.Errorf("%s: %s, %v; want what the other handler returns", payload, out, err)
		}
	}
	out, err := awslambda.Handler(h, nil).Invoke(t.Context(), []byte(`{"httpMethod":"GET","path":7,"requestContext":{"identity":{}}}`))
	var typeError *json.UnmarshalTypeError
	if !errors.As(err, &typeError) || out != nil {
		t.Errorf("%s, %v; want a *json.UnmarshalTypeError", out, err)
	}
}

// otherHandler returns the payload and an error.
type otherHandler struct{ err error }

func (o otherHandler) Invoke(_ context.Context, payload []byte) ([]byte, error) {
	return payload, o.err
}

// Only AWS has names under on.aws. A custom domain of an HTTP API can hold anything else.
func TestFunctionURLIsKnownByItsDomain(t *testing.T) {
	t.Parallel()
	const url = "abcdefghijklmnopqrstuvwxyz012345.lambda-url.eu-central-1.on.aws"
	for domain, want := range map[string]bool{
		url:                                           true,
		"u1.lambda-url.us-gov-west-1.on.aws":          true,
		"api.lambda-url.example.com":                  false,
		"x.lambda-url.on.aws.example.com":             false,
		url + ".example.com":                          false,
		"lambda-url.eu-central-1.on.aws.":             false,
		"a1b2.execute-api.eu-central-1.amazonaws.com": false,
		"a1b2.execute-api.eu-central-1.on.aws":        false,
	} {
		var ctx context.Context
		h := awslambda.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() }), nil)
		payload := bytes.ReplaceAll(recorded(t, "functionurl"), []byte(url), []byte(domain))
		must(t, testenv.ErrorOf(h.Invoke(t.Context(), payload)))
		_, got := awslambda.EventFromContext[events.LambdaFunctionURLRequest](ctx)
		testenv.Equal(t, got, want, domain, "is a function URL")
	}
}

func TestWrongProgramsPanic(t *testing.T) {
	t.Parallel()
	serves := func(h http.HandlerFunc) func() {
		return func() { _, _ = awslambda.Handler(h, nil).Invoke(t.Context(), recorded(t, "rest")) }
	}
	for name, f := range map[string]func(){
		"Handler":                func() { awslambda.Handler(nil, nil) },
		"REST":                   func() { awslambda.REST(nil) },
		"LimitALB":               func() { awslambda.LimitALB(newLimiter(t, 1), handler.ClientIP())(nil) },
		"LimitAllALB":            func() { awslambda.LimitAllALB(newRules(t))(nil) },
		"no rules":               func() { awslambda.LimitAllREST(nil) },
		"no rule key":            func() { awslambda.LimitAllHTTPAPI([]handler.Rule{{Limiter: newLimiter(t, 1)}}) },
		"no limiter":             func() { awslambda.LimitREST(nil, handler.ClientIP()) },
		"no key":                 func() { awslambda.LimitREST(newLimiter(t, 1), nil) },
		"no refunds":             func() { awslambda.LimitALB(noRefunds{newLimiter(t, 1)}, handler.ClientIP(), handler.ChargeFailures()) },
		"a panic of the handler": serves(func(http.ResponseWriter, *http.Request) { panic("a bug") }),
		"the status 0":           serves(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(0) }),
		"a status below 100":     serves(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(99) }),
		"a status beyond 999":    serves(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1000) }),
	} {
		t.Run(name, func(t *testing.T) { testenv.Panics(t, "", f) })
	}
}

type noRefunds struct{ handler.Limiter }

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

// FuzzRequest sends requests through every gateway. The path arrives whole, and the key is the client's.
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

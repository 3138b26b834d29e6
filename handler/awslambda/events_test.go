package awslambda_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

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

// seen serves a recorded event and returns the request that the handler got, and its
// body.
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
			t.Parallel()
			r, body := seen(t, recorded(t, tt.event))
			if r.Method != "POST" || r.Host != tt.host || r.RemoteAddr != tt.addr || r.Proto != "HTTP/1.1" || !r.ProtoAtLeast(1, 1) {
				t.Errorf("%s %s from %s, %s", r.Method, r.Host, r.RemoteAddr, r.Proto)
			}
			if r.URL.Path != "/orders/space value/a/b" || r.URL.RawPath != tt.escaped {
				t.Errorf("the path is %q, escaped %q", r.URL.Path, r.URL.RawPath)
			}
			if path, query, _ := strings.Cut(r.RequestURI, "?"); path != tt.uriPath || query != r.URL.RawQuery {
				t.Errorf("RequestURI = %q", r.RequestURI)
			}
			want := map[string][]string{"plus": {"a+b"}, "repeat": tt.repeat, "url": {"https://example.com/?a=b&c"}}
			if q := map[string][]string(r.URL.Query()); !reflect.DeepEqual(q, want) {
				t.Errorf("the query is %v, want %v", q, want)
			}
			if got := r.Header["X-Probe"]; !reflect.DeepEqual(got, tt.probe) {
				t.Errorf("X-Probe = %q, want %q", got, tt.probe)
			}
			if got := r.Header["Cookie"]; !reflect.DeepEqual(got, []string{"session=abc123; theme=dark"}) {
				t.Errorf("Cookie = %q", got)
			}
			if c, err := r.Cookie("theme"); err != nil || c.Value != "dark" {
				t.Errorf("the cookie is %v, %v", c, err)
			}
			if _, ok := r.Header["Host"]; ok {
				t.Error("Host is in the header, where a server does not have it")
			}
			if body != `{"message":"caffè"}` || r.ContentLength != int64(len(body)) {
				t.Errorf("the body is %q, of %d bytes", body, r.ContentLength)
			}
			if key, err := handler.ClientIP()(r); err != nil || key != tt.key {
				t.Errorf("the key is %q, %v; want %q", key, err, tt.key)
			}
			if r.Pattern != "" {
				t.Errorf("the pattern is %q before a mux has seen the request", r.Pattern)
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
	if key, err := handler.ClientIP()(r); !errors.Is(err, handler.ErrNoKey) {
		t.Errorf("its key is %q, %v; want ErrNoKey", key, err)
	}
}

func TestZeroEvents(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+r.RequestURI+" "+r.Proto)
	})
	for _, g := range gateways() {
		if a := g.answer(t, g.plain(h), []byte("{}")); a.body != "GET / / HTTP/1.1" {
			t.Errorf("%s: the request is %q", g.name, a.body)
		}
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
		if r.URL.Path != tt.path || r.URL.EscapedPath() != tt.escaped || r.URL.Query().Get("plus") != "a+b" {
			t.Errorf("%s: the path is %q, escaped %q, and the query %q", tt.event, r.URL.Path, r.URL.EscapedPath(), r.URL.RawQuery)
		}
	}
}

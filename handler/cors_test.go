package handler_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
)

// cors is what CORS middleware does: it allows an origin, and answers preflights itself.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://app.example.com")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// preflight returns the request that a browser sends before a script's.
func preflight() *http.Request {
	r := httptest.NewRequest(http.MethodOptions, "/", http.NoBody)
	r.Header.Set("Origin", "https://app.example.com")
	r.Header.Set("Access-Control-Request-Method", http.MethodPut)
	return r
}

func TestSkipPreflight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		change  func(*http.Request)
		skipped bool
	}{
		{"a preflight", func(*http.Request) {}, true},
		{"the request itself", func(r *http.Request) { r.Method = http.MethodPut }, false},
		{"no origin", func(r *http.Request) { r.Header.Del("Origin") }, false},
		{"no method", func(r *http.Request) { r.Header.Del("Access-Control-Request-Method") }, false},
		{"an empty method", func(r *http.Request) { r.Header.Set("Access-Control-Request-Method", "") }, false},
		{"OPTIONS alone", func(r *http.Request) { clear(r.Header) }, false},
	} {
		for _, option := range []bool{true, false} {
			l, next := &fixedLimiter{result: limiter.Result{Allowed: true, Source: limiter.SourceStore}}, &nextHandler{}
			var opts []handler.Option
			if option {
				opts = append(opts, handler.SkipPreflight(), handler.Skip(func(*http.Request) bool { return false }))
			}
			r := preflight()
			c.change(r)
			resp := askBy(handler.New(l, oneKey, opts...)(next), r)
			wantStatus(t, resp, http.StatusTeapot)
			skipped, bare := len(l.asked) == 0, resp.header["Ratelimit"] == nil
			if skipped != (c.skipped && option) || bare != skipped {
				t.Errorf("%s, with the option: %v: skipped: %v, with %v", c.name, option, skipped, resp.header)
			}
		}
	}
}

// CORS middleware belongs outside of the limiter. Where a router has it inside, this
// option keeps browsers from being charged twice.
func ExampleSkipPreflight() {
	limit := handler.New(mustLimiter("api", limiter.PerMinute(1)), handler.ClientIP(), handler.SkipPreflight())
	h := limit(cors(http.HandlerFunc(search)))
	for _, r := range []*http.Request{preflight(), httptest.NewRequest(http.MethodPut, "/", http.NoBody)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(r.Method, w.Code, w.Header()["Ratelimit"])
	}
	// Output:
	// OPTIONS 204 []
	// PUT 200 ["api";r=0;t=60]
}

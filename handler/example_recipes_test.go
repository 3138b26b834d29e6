package handler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
)

// Behind one proxy, only the last address of the header counts: the proxy wrote it.
func ExampleTrustedHops() {
	searches := mustLimiter("search", limiter.PerMinute(2)) // in your program: limiter.New
	limit := handler.New(searches, handler.ClientIP(handler.TrustedHops(1)))
	mux := http.NewServeMux()
	mux.Handle("GET /search", limit(http.HandlerFunc(search)))

	for _, forwarded := range []string{"192.0.2.1", "1.1.1.1, 192.0.2.1", "2.2.2.2, 192.0.2.1", "192.0.2.9"} {
		r := httptest.NewRequest(http.MethodGet, "/search", http.NoBody)
		r.Header.Set("X-Forwarded-For", forwarded)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(forwarded, w.Code)
	}
	// Output:
	// 192.0.2.1 200
	// 1.1.1.1, 192.0.2.1 200
	// 2.2.2.2, 192.0.2.1 429
	// 192.0.2.9 200
}

// credentials is the body of a login.
type credentials struct{ User, Password string }

type credentialsKey struct{}

// decodeLogin decodes the body for the limiter and for the login.
func decodeLogin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c credentials
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&c); err != nil {
			http.Error(w, "send user and password as JSON", http.StatusBadRequest)
			return
		}
		c.User = strings.ToLower(strings.TrimSpace(c.User))
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), credentialsKey{}, c)))
	})
}

// account returns the account, or "" if the body names none.
func account(r *http.Request) string {
	c, _ := r.Context().Value(credentialsKey{}).(credentials)
	return c.User
}

func logIn(w http.ResponseWriter, r *http.Request) {
	c, _ := r.Context().Value(credentialsKey{}).(credentials)
	if c.Password != "open sesame" { // in your program: compare password hashes
		http.Error(w, "wrong user or password", http.StatusUnauthorized)
		return
	}
	handler.Succeeded(r.Context()) // gives both costs back when logIn returns
}

func Example_login() {
	byAddress := handler.New(mustLimiter("login-address", limiter.PerMinute(20)),
		handler.ClientIP(), handler.ChargeFailures())
	byAccount := handler.New(mustLimiter("login-account", limiter.PerMinute(2)),
		handler.User(account), handler.ChargeFailures(), handler.HideQuota())
	h := byAddress(decodeLogin(byAccount(http.HandlerFunc(logIn))))

	for _, body := range []string{
		`{"user": "alice@x", "password": "open sesame"}`,
		`{"user": "alice@x", "password": "guess 1"}`,
		`{"user": "Alice@x", "password": "guess 2"}`,
		`{"user": "alice@x", "password": "open sesame"}`,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(body)))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 401
	// 401
	// 429
}

package main

import (
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/sqlimit/limiter/handler"
)

// password is the password of every account.
const password = "open sesame"

// account returns the key of login-account: the account's name in a normal form.
// Otherwise "Alice" and " alice " would have five attempts each.
func account(r *http.Request) (string, error) {
	if err := r.ParseForm(); err != nil {
		return "", handler.ErrNoKey // not err: it can quote the form
	}
	return strings.ToLower(strings.TrimSpace(r.PostForm.Get("user"))), nil
}

func login(w http.ResponseWriter, r *http.Request) {
	if subtle.ConstantTimeCompare([]byte(r.PostForm.Get("password")), []byte(password)) != 1 {
		answer(w, http.StatusUnauthorized, map[string]any{"error": "wrong user or password"})
		return
	}
	handler.Succeeded(r.Context())
	answer(w, http.StatusOK, map[string]any{"welcome": r.PostForm.Get("user")})
}

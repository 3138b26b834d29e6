package main

import (
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/sqlimit/limiter/handler"
)

// password is everybody's.
const password = "open sesame"

// maxForm is the longest body of a login, in bytes.
const maxForm = 4 << 10

// account returns what logins are limited by: the account that they are for, in the
// one form in which the accounts' names are compared. "Alice" and " alice " would have
// five attempts each otherwise.
func account(r *http.Request) (string, error) {
	if err := r.ParseForm(); err != nil {
		return "", handler.ErrNoKey // not err, which can quote the form
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

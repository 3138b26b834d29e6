package handler

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/sqlimit/limiter/handler/internal/field"
	"github.com/sqlimit/limiter/middleware"
)

// KeyFunc returns the key by which a request is limited. If it returns an error or an empty key,
// the request is refused with 400. The text of the error is logged only if [middleware.NoKey] made it,
// because it may hold a key. It must be safe for concurrent use.
type KeyFunc func(*http.Request) (string, error)

// ErrNoKey means that a request has no key. It is [middleware.ErrNoKey]. The errors of this package's key
// functions match it.
var ErrNoKey = middleware.ErrNoKey

// Header returns a KeyFunc for the value of a header. The request must have exactly one line of it,
// which is not empty. Clients can write any header, so limit by one only after it was verified, as
// an API key is. Before that, limit by [ClientIP].
//
// Header panics if name is not a valid header name. It also panics for X-Forwarded-For and
// Forwarded, which are lists that clients begin, and for Host, which Go does not keep as a header.
func Header(name string) KeyFunc {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !field.IsName(name):
		panic(fmt.Sprintf("handler: Header got %q, which is not a valid header name; pass a name such as \"X-Api-Key\"", name))
	case canonical == "Host":
		panic("handler: Go does not keep Host as a header; pass a function that returns r.Host")
	case canonical == "X-Forwarded-For", canonical == "Forwarded":
		panic(fmt.Sprintf("handler: Header cannot use %s, a list that clients begin; use ClientIP with TrustedProxies or TrustedHops", canonical))
	}
	name = canonical
	return func(r *http.Request) (string, error) {
		lines := r.Header[name]
		if len(lines) != 1 || lines[0] == "" {
			return "", middleware.NoKey(middleware.WithoutField, "the header %s has %d lines; clients must send one that is not empty, or choose another key", name, len(lines))
		}
		return lines[0], nil
	}
}

// User returns a KeyFunc for the user that authentication found. Authentication must run before the
// limiter. If name returns "", there is no user, and the request is refused. User panics if name is nil.
func User(name func(*http.Request) string) KeyFunc {
	if name == nil {
		panic("handler: User got nil; pass a function that returns the authenticated user's name")
	}
	return func(r *http.Request) (string, error) {
		user := name(r)
		if user == "" {
			return "", middleware.NoKey(middleware.WithoutUser, "the request has no authenticated user; put the limiter behind authentication")
		}
		return user, nil
	}
}

// Route returns a KeyFunc for the pattern that the router matched. The router must set
// [http.Request.Pattern], as [http.ServeMux] and chi do.
//
// The limiter must wrap the route's handler (chi: r.With(limit).Get(...)), not the router. A router
// sets the pattern after it was called. Around it the limiter finds no pattern, or that of an outer
// router, which is the same for all routes. Without a pattern the request is refused with [ErrNoKey].
func Route() KeyFunc {
	return func(r *http.Request) (string, error) {
		if r.Pattern == "" {
			return "", middleware.NoKey(middleware.WithoutRoute, "no route was matched; put the limiter around the handler of the route, not around the router")
		}
		return r.Pattern, nil
	}
}

// Join returns a KeyFunc for several keys together, such as route and user. The length of each key
// precedes it, so that two different lists never give the same key: ("a", "bc") and ("ab", "c")
// differ. Join panics without keys or if one is nil.
func Join(keys ...KeyFunc) KeyFunc {
	if len(keys) == 0 {
		panic("handler: Join got no keys")
	}
	for _, key := range keys {
		if key == nil {
			panic("handler: Join got a nil key")
		}
	}
	return func(r *http.Request) (string, error) {
		var joined []byte
		for _, key := range keys {
			k, err := key(r)
			if err != nil {
				return "", err
			}
			if k == "" {
				return "", middleware.NoKey(middleware.WithoutKey, "one of the keys of Join is empty; every function must return a key or an error")
			}
			joined = strconv.AppendInt(joined, int64(len(k)), 10)
			joined = append(joined, ':')
			joined = append(joined, k...)
		}
		return string(joined), nil
	}
}

package handler

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/sqlimit/limiter/handler/internal/field"
)

// KeyFunc returns what a request is limited by. An error, or an empty key, refuses
// the request with 400: it is neither let pass nor counted with others of which
// the key is unknown. It must be safe for concurrent use.
type KeyFunc func(*http.Request) (string, error)

// ErrNoKey is matched by the errors of this package's key functions: the request
// has nothing to be limited by.
var ErrNoKey = errors.New("handler: the request has no key")

func noKey(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNoKey, fmt.Sprintf(format, args...))
}

// Header returns a KeyFunc for the value of a header, of which the request must
// have exactly one that is not empty. Clients write headers: limit by one only
// after it was verified, as an API key is, and by [ClientIP] before that.
//
// Header panics if no header can have the name. It also panics for X-Forwarded-For and
// Forwarded, lists that clients begin, and for Host, which is no header of a request in Go.
func Header(name string) KeyFunc {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !field.IsName(name):
		panic(fmt.Sprintf("handler: Header got %q, which no header is called; pass a name such as \"X-Api-Key\"", name))
	case canonical == "Host":
		panic("handler: Host is no header of a request in Go; pass a function that returns r.Host")
	case canonical == "X-Forwarded-For", canonical == "Forwarded":
		panic(fmt.Sprintf("handler: Header cannot use %s, a list that clients begin; use ClientIP with TrustedProxies or TrustedHops", canonical))
	}
	name = canonical
	return func(r *http.Request) (string, error) {
		lines := r.Header[name]
		if len(lines) != 1 || lines[0] == "" {
			return "", noKey("the header %s has %d lines; it must have one that is not empty", name, len(lines))
		}
		return lines[0], nil
	}
}

// User returns a KeyFunc for the user that authentication, which must run before
// the limiter, found. The function returns "" for nobody; such a request is
// refused.
func User(name func(*http.Request) string) KeyFunc {
	if name == nil {
		panic("handler: User got nil; pass a function that returns the authenticated user's name")
	}
	return func(r *http.Request) (string, error) {
		user := name(r)
		if user == "" {
			return "", noKey("nobody is authenticated; put the limiter behind authentication")
		}
		return user, nil
	}
}

// Route returns a KeyFunc for the pattern that the router matched, which must set
// [http.Request.Pattern] as [http.ServeMux] and chi do. The limiter must wrap the
// route's handler (chi: r.With(limit).Get(...)) and not the router, which has not
// matched the request before it is called: it finds no pattern there, or that of
// another router around it, one for all of its routes.
func Route() KeyFunc {
	return func(r *http.Request) (string, error) {
		if r.Pattern == "" {
			return "", noKey("no route was matched; put the limiter around the handler of the route, not around the router")
		}
		return r.Pattern, nil
	}
}

// Join returns a KeyFunc for the keys together, such as route and user. Each is
// preceded by its length, so that no two lists of keys give the same: ("a", "bc")
// and ("ab", "c") differ.
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
				return "", noKey("one of the joined keys is empty")
			}
			joined = strconv.AppendInt(joined, int64(len(k)), 10)
			joined = append(joined, ':')
			joined = append(joined, k...)
		}
		return string(joined), nil
	}
}

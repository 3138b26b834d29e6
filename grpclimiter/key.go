package grpclimiter

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/middleware"
)

// Call is the call that an interceptor decides on.
type Call struct {
	// FullMethod is the called method, such as "/package.Service/Method".
	FullMethod string
	// Request is the message of a unary call. It is nil for every stream, because a stream is
	// decided before its first message is read.
	Request any
}

// KeyFunc returns the key by which a call is limited. If it returns an error or an empty key, the
// call ends with INVALID_ARGUMENT. It must be safe for concurrent use. The context is that of the
// call: package metadata finds the call's metadata in it, and package peer its peer.
type KeyFunc func(context.Context, Call) (string, error)

// ErrNoKey means that a call has no key. It is [handler.ErrNoKey]. The errors of this package's key
// functions match it.
var ErrNoKey = handler.ErrNoKey

// ClientIP returns a KeyFunc for the client's address. Without an option that is the address of the
// peer, and no metadata is read. Behind a proxy, pass one of [handler.TrustedProxies],
// [handler.TrustedHops] and [handler.AddressHeader], which read the metadata as if it were the
// header of an HTTP request. See [handler.ClientIP] for the keys, the options and the panics.
func ClientIP(opts ...handler.IPOption) KeyFunc {
	find := handler.ClientIP(opts...)
	return func(ctx context.Context, _ Call) (string, error) {
		var r http.Request
		if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
			r.RemoteAddr = p.Addr.String()
		}
		md, _ := metadata.FromIncomingContext(ctx)
		r.Header = make(http.Header, len(md))
		for name, values := range md {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
		return find(r.WithContext(ctx))
	}
}

// Metadata returns a KeyFunc for a value of the call's metadata. The call must have exactly one
// value of that name, which is not empty. Clients can write any metadata, so limit by a value only
// after it was verified, as an API key is. Before that, limit by [ClientIP].
//
// The case of the name does not matter. Metadata panics if the name is not one that gRPC allows. It
// also panics for host, te and connection, which no call has, and for x-forwarded-for and forwarded,
// which are lists that clients begin.
func Metadata(name string) KeyFunc {
	lower := strings.ToLower(name)
	switch {
	case !isName(lower):
		panic(fmt.Sprintf("grpclimiter: Metadata got %q, which is not a valid name; pass one of letters, digits, '-', '_' and '.', such as \"x-api-key\"", name))
	case lower == "host", lower == "te", lower == "connection": // gRPC removes them, or ends the call
		panic(fmt.Sprintf("grpclimiter: Metadata got %q, which no call has as metadata; pass a name of the application's own, such as \"x-api-key\"", name))
	case strings.HasPrefix(lower, "grpc-"):
		panic(fmt.Sprintf("grpclimiter: Metadata got %q, but gRPC keeps names that begin with grpc- to itself; pass another name", name))
	case lower == "x-forwarded-for", lower == "forwarded":
		panic(fmt.Sprintf("grpclimiter: Metadata cannot use %s, a list that clients begin; use ClientIP with handler.TrustedProxies or handler.TrustedHops", lower))
	}
	return func(ctx context.Context, _ Call) (string, error) {
		values := metadata.ValueFromIncomingContext(ctx, lower)
		if len(values) != 1 || values[0] == "" {
			return "", middleware.NoKey(middleware.WithoutField, "the metadata has %d values of %s; clients must send one that is not empty, or choose another key", len(values), lower)
		}
		return values[0], nil
	}
}

// Method returns a KeyFunc for the called method, such as "/package.Service/Method". All clients
// share the key. Use [Join] to count each client of a method alone.
//
// A server with an UnknownServiceHandler, such as a proxy, also passes methods that it does not
// know. Clients can then make any number of keys.
func Method() KeyFunc {
	return func(_ context.Context, call Call) (string, error) { return call.FullMethod, nil }
}

// Join returns a KeyFunc for several keys together, such as method and client. The length of each
// key precedes it, so that two different lists never give the same key: ("a", "bc") and ("ab", "c")
// differ. Join panics if it gets no key or a nil key.
func Join(keys ...KeyFunc) KeyFunc {
	if len(keys) == 0 {
		panic("grpclimiter: Join got no keys")
	}
	for _, key := range keys {
		if key == nil {
			panic("grpclimiter: Join got a nil key")
		}
	}
	return func(ctx context.Context, call Call) (string, error) {
		var joined []byte
		for _, key := range keys {
			k, err := key(ctx, call)
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

// isName reports whether gRPC can send metadata of this name, in lower case.
func isName(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

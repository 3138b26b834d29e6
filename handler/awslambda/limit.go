package awslambda

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/middleware"
)

// limit returns middleware by one limiter for functions that take the event itself.
func (f *form[E, R]) limit(l handler.Limiter, key handler.KeyFunc, opts []handler.Option) func(func(context.Context, E) (R, error)) func(context.Context, E) (R, error) {
	return f.around(handler.New(l, keyOfReadable(key), opts...))
}

// limitAll returns middleware by several limiters for functions that take the event itself.
func (f *form[E, R]) limitAll(rules []handler.Rule, opts []handler.Option) func(func(context.Context, E) (R, error)) func(context.Context, E) (R, error) {
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].Key = keyOfReadable(rules[i].Key)
	}
	return f.around(handler.NewAll(rules, opts...))
}

// around returns middleware for functions that take the event itself. It is limited, which is
// middleware of package handler, with the function as a handler that writes nothing.
func (f *form[E, R]) around(limited func(http.Handler) http.Handler) func(func(context.Context, E) (R, error)) func(context.Context, E) (R, error) {
	return func(next func(context.Context, E) (R, error)) func(context.Context, E) (R, error) {
		if next == nil {
			panic("awslambda: the next function is nil; pass the one that is to be limited")
		}
		return func(ctx context.Context, event E) (out R, err error) {
			passed := false
			call := limited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				passed = true
				out, err = next(r.Context(), event)
			}))
			w := f.serve(ctx, &event, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if f.route != nil {
					r.Pattern = f.route(&event)
				}
				call.ServeHTTP(w, r)
			}))
			if !passed {
				return f.respond(&event, w), nil
			}
			if err == nil && len(w.header) > 0 {
				f.merge(&event, &out, w.header)
			}
			return out, err
		}
	}
}

// keyOfReadable returns a function that calls key, or returns an error for an event that is no
// request: the limiter refuses that with 400, unless an option says otherwise.
func keyOfReadable(key handler.KeyFunc) handler.KeyFunc {
	if key == nil {
		return nil // package handler panics
	}
	return func(r *http.Request) (string, error) {
		if err := unreadable(r); err != nil {
			return "", middleware.NoKey(middleware.WithoutKey, "no request can be made of the event, because %v; pass Skip to serve such events", err)
		}
		return key(r)
	}
}

// lists are the header fields of package handler that have items of several limiters.
var lists = map[string]bool{"Ratelimit-Policy": true, "Ratelimit": true, "Access-Control-Expose-Headers": true}

// merged adds the fields of h to a response's, which are single values or lists of
// lines. New ones become lists of lines if so told. The maps that it gets may be
// shared by all invocations: it returns others.
func merged(h http.Header, values map[string]string, lines map[string][]string, asLines bool) (map[string]string, map[string][]string) {
	values, lines = maps.Clone(values), maps.Clone(lines)
	if asLines && lines == nil {
		lines = make(map[string][]string)
	}
	if !asLines && values == nil {
		values = make(map[string]string)
	}
	for name, ours := range h {
		value := strings.Join(ours, ", ")
		if own, ok := find(lines, name); ok {
			if lists[name] {
				lines[own] = append([]string{value}, lines[own]...)
			}
		} else if own, ok := find(values, name); ok {
			if lists[name] {
				values[own] = value + ", " + values[own]
			}
		} else if asLines {
			lines[name] = ours
		} else {
			values[name] = value
		}
	}
	return values, lines
}

// find returns the key that is the name of a header field, in whatever case.
func find[V any](fields map[string]V, name string) (string, bool) {
	if _, ok := fields[name]; ok {
		return name, true
	}
	for key := range fields {
		if strings.EqualFold(key, name) {
			return key, true
		}
	}
	return "", false
}

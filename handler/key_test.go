package handler_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/handler"
)

func TestKeysOfARequest(t *testing.T) {
	t.Parallel()
	user := handler.User(func(r *http.Request) string {
		name, _, _ := r.BasicAuth()
		return name
	})
	request := func(change func(*http.Request)) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		if change != nil {
			change(r)
		}
		return r
	}
	login := func(r *http.Request) { r.SetBasicAuth("alice", "secret") }
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		key  handler.KeyFunc
		r    *http.Request
		want string
		err  error
	}{
		{"a header", handler.Header("x-api-key"), request(func(r *http.Request) { r.Header.Set("X-Api-Key", "k1") }), "k1", nil},
		{"no header", handler.Header("X-Api-Key"), request(nil), "", handler.ErrNoKey},
		{"an empty header", handler.Header("X-Api-Key"), request(func(r *http.Request) { r.Header.Set("X-Api-Key", "") }), "", handler.ErrNoKey},
		{"two lines of a header", handler.Header("X-Api-Key"), request(func(r *http.Request) {
			r.Header["X-Api-Key"] = []string{"k1", "k2"}
		}), "", handler.ErrNoKey},
		{"a user", user, request(login), "alice", nil},
		{"nobody", user, request(nil), "", handler.ErrNoKey},
		{"a route", handler.Route(), request(func(r *http.Request) { r.Pattern = "GET /items/{id}" }), "GET /items/{id}", nil},
		{"no route", handler.Route(), request(nil), "", handler.ErrNoKey},
		{"route and user", handler.Join(handler.Route(), user), request(func(r *http.Request) { login(r); r.Pattern = "/a" }), "2:/a5:alice", nil},
		{"a missing part", handler.Join(handler.Route(), user), request(login), "", handler.ErrNoKey},
		{"an empty part", handler.Join(user, func(*http.Request) (string, error) { return "", nil }), request(login), "", handler.ErrNoKey},
		{"a part that fails", handler.Join(user, func(*http.Request) (string, error) { return "", broken }), request(login), "", broken},
	} {
		got, err := c.key(c.r)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", c.name, got, err, c.want, c.err)
		}
		if err != nil && (strings.Contains(err.Error(), "alice") || strings.Contains(err.Error(), "k1")) {
			t.Errorf("%s: the error holds the key: %v", c.name, err)
		}
	}
}

// All lists of up to three short keys, of which one may look like the end of another.
func TestJoinedKeysDiffer(t *testing.T) {
	t.Parallel()
	parts := []string{"1", ":", "_", "11", "1:", ":1", "1_", "_1", "::", "__", ":_", "_:", "2:1", "1:1"}
	lists := [][]string{}
	for _, a := range parts {
		lists = append(lists, []string{a})
		for _, b := range parts {
			lists = append(lists, []string{a, b})
			for _, c := range parts {
				lists = append(lists, []string{a, b, c})
			}
		}
	}
	joined := map[string][]string{}
	for _, list := range lists {
		var keys []handler.KeyFunc
		for _, part := range list {
			keys = append(keys, func(*http.Request) (string, error) { return part, nil })
		}
		key, err := handler.Join(keys...)(nil)
		if other := joined[key]; err != nil || other != nil {
			t.Fatalf("%q are joined to %q, as are %q (%v)", list, key, other, err)
		}
		joined[key] = list
	}
}

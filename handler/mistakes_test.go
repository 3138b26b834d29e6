package handler_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/testenv"
)

const secret = "alice-9f31c2-and-more@example.com"

// keyed is a request that has the secret wherever a client can write one.
func keyed() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/"+secret, http.NoBody)
	r.Header["X-Api-Key"] = []string{secret, secret}
	r.SetBasicAuth(secret, secret)
	return r
}

func TestMistakes(t *testing.T) {
	nobody := handler.User(func(*http.Request) string { return "" })
	for _, c := range []struct {
		name   string
		key    handler.KeyFunc
		cost   int64
		detail string
		fix    string // in the log
	}{
		{"TrustedHops without a proxy", handler.ClientIP(handler.TrustedHops(1)), 1, "The client's address is unknown.", "without a proxy, leave TrustedHops out"},
		{"a route outside of a mux", handler.Route(), 1, "The request matched no route.", "put the limiter around the handler of the route"},
		{"no user", nobody, 1, "The request has no authenticated user.", "put the limiter behind authentication"},
		{"no header", handler.Header("X-Tenant"), 1, "A required header field is missing, empty or repeated.", "the header X-Tenant has 0 lines; clients must send one"},
		{"a header twice", handler.Header("X-Api-Key"), 1, "A required header field is missing, empty or repeated.", "the header X-Api-Key has 2 lines; clients must send one"},
		{"a cost above the capacity", oneKey, 100, "The request costs more than its rate limit ever admits.", "the cost is 100; the policy admits at most 60; raise the limit, or let Cost return less"},
		{"an empty key", func(*http.Request) (string, error) { return "", nil }, 1, "The request has no key for its rate limit.", "the key function returned an empty key; return one"},
		{"an empty part of a key", handler.Join(oneKey, func(*http.Request) (string, error) { return "", nil }), 1, "The request has no key for its rate limit.", "every function must return a key"},
		{"an error of the application", func(r *http.Request) (string, error) {
			return "", errors.New("cannot parse " + r.URL.Path)
		}, 1, "The request has no key for its rate limit.", "set OnError to see it"},
		{"an ErrNoKey of the application", func(r *http.Request) (string, error) {
			return "", fmt.Errorf("%w: cannot parse %s", handler.ErrNoKey, r.URL.Path)
		}, 1, "The request has no key for its rate limit.", "set OnError to see it"},
		{"an error that the application wraps", func(r *http.Request) (string, error) {
			_, err := nobody(r)
			return "", fmt.Errorf("%s: %w", r.URL.Path, err)
		}, 1, "The request has no authenticated user.", "put the limiter behind authentication"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := testenv.Logged(t)
			cost := handler.Cost(func(*http.Request) int64 { return c.cost })
			limit := func(opts ...handler.Option) http.Handler {
				return handler.New(newLimiter(t, newClock(), "l", limiter.PerMinute(60)), c.key, append(opts, cost)...)(&nextHandler{})
			}
			synctest.Test(t, func(t *testing.T) {
				h := limit()
				want := map[string]any{"title": "Bad Request", "status": 400.0, "detail": c.detail}
				for minute := range 2 {
					for range 20 {
						testenv.Equal(t, wantStatus(t, askBy(h, keyed()), http.StatusBadRequest), want, "the body")
					}
					testenv.Equal(t, strings.Count(log.String(), "\n"), minute+1, "lines of the log")
					<-time.After(time.Minute)
				}
			})
			text := log.String()
			testenv.Contains(t, text, "level=WARN", "limiter=l", c.fix, "suppressed=19")
			testenv.Equal(t, keyleak.Of(secret).In(log.Bytes()), nil, "traces of the key in the log", text)
			log.Reset()
			var got error
			askBy(limit(handler.OnError(func(_ *http.Request, err error) { got = err })), keyed())
			if log.Len() > 0 || got == nil || c.cost == 1 && !errors.Is(got, handler.ErrNoKey) {
				t.Errorf("OnError got %v, and the log %q", got, log)
			}
		})
	}
}

func TestFailuresAreLoggedOnceAMinute(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("limiter %q: %w: no tables", "fake", limiter.ErrMisconfigured),
		limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrInvalid, errors.New("of no class"),
	} {
		for name, opts := range map[string][]handler.Option{"": nil, "fail open": {handler.FailOpen()}, "dry run": {handler.DryRun()}} {
			t.Run(fmt.Sprint(err, " ", name), func(t *testing.T) {
				log := testenv.Logged(t)
				synctest.Test(t, func(*testing.T) {
					h := handler.New(fails(err), oneKey, opts...)(&nextHandler{})
					for range 20 {
						ask(h)
						<-time.After(3*time.Second - 1) // a minute, but for 20 ns
					}
				})
				text := log.String()
				testenv.Equal(t, strings.Count(text, "\n"), 1, "lines of the log", text)
				testenv.Contains(t, text, "level=ERROR", "limiter=fake", strings.ReplaceAll(err.Error(), `"`, `\"`))
				if strings.Contains(text, "everybody") {
					t.Errorf("the log holds the key: %s", text)
				}
			})
		}
	}
}

func TestNotLogged(t *testing.T) {
	log := testenv.Logged(t)
	for _, h := range []http.Handler{
		handler.New(fails(fmt.Errorf("%w: %w", limiter.ErrNotApplied, limiter.ErrKeyBusy)), oneKey)(&nextHandler{}),
		handler.New(fails(fmt.Errorf("%w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown)), oneKey)(&nextHandler{}),
		handler.New(&fixedLimiter{result: limiter.Result{Limit: 1, Source: limiter.SourceStore}}, oneKey)(&nextHandler{}),
		handler.New(fails(limiter.ErrMisconfigured), oneKey, handler.OnError(func(*http.Request, error) {}))(&nextHandler{}),
	} {
		ask(h)
	}
	testenv.Equal(t, log.String(), "", "the log")
}

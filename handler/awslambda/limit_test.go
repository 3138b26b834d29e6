package awslambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"go.uber.org/goleak"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

func newStore() *memory.Store {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return memory.New(memory.WithClock(func() time.Time { return now }))
}

// newLimiter returns a limiter of n an hour, on a clock that stands still.
func newLimiter(t testing.TB, n int64) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(newStore(), "orders", limiter.PerHour(n))
	must(t, err)
	return l
}

func oneRule(t testing.TB, n int64) []handler.Rule {
	t.Helper()
	return []handler.Rule{{Limiter: newLimiter(t, n), Key: handler.ClientIP()}}
}

// newRules returns rules of 2 and of 3 an hour for each client, on a clock that stands still.
func newRules(t testing.TB) []handler.Rule {
	t.Helper()
	store := newStore()
	burst, err := limiter.New(store, "burst", limiter.PerHour(2))
	must(t, err)
	hour, err := limiter.New(store, "hour", limiter.FixedWindow{Limit: 3, Window: time.Hour})
	must(t, err)
	return []handler.Rule{{Limiter: burst, Key: handler.ClientIP()}, {Limiter: hour, Key: handler.ClientIP()}}
}

func ok(context.Context) (status int, header map[string]string, err error) {
	return http.StatusOK, map[string]string{"X-Own": "yes"}, nil
}

// limitedHandler returns a handler behind rules.
func limitedHandler(rules []handler.Rule) http.Handler {
	limit := handler.NewAll(rules)
	if len(rules) == 1 {
		limit = handler.New(rules[0].Limiter, rules[0].Key)
	}
	return limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Own", "yes") }))
}

// limited returns a limited http.Handler behind Handler, and a limited function. Each has its own rules.
func limited(g *gateway, rules func() []handler.Rule) map[string]lambda.Handler {
	return map[string]lambda.Handler{
		"handler":  awslambda.Handler(limitedHandler(rules()), nil),
		"function": g.limitAll(rules())(ok),
	}
}

func invoke[E, R any](ctx context.Context, t *testing.T, event string, f eventFunc[E, R]) (R, error) {
	t.Helper()
	var e E
	must(t, json.Unmarshal(recorded(t, event), &e))
	return f(ctx, e)
}

func TestFunctionSeesDecisionAndEvent(t *testing.T) {
	t.Parallel()
	called, failed := false, errors.New("failed")
	want := events.APIGatewayProxyResponse{StatusCode: http.StatusOK, Body: "half"}
	f := awslambda.LimitREST(newLimiter(t, 3), handler.ClientIP())(func(ctx context.Context, e events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
		called = true
		if res, ok := handler.ResultFromContext(ctx); !ok || !res.Allowed || res.Remaining != 2 {
			t.Errorf("the decision is %+v, %v", res, ok)
		}
		if got, ok := awslambda.EventFromContext[events.APIGatewayProxyRequest](ctx); !ok || !reflect.DeepEqual(got, e) {
			t.Errorf("the context's event is %+v, %v", got, ok)
		}
		testenv.Equal(t, ctx.Value(traceKey{}), "trace", "the value of the invocation's context")
		return want, failed
	})
	got, err := invoke(context.WithValue(t.Context(), traceKey{}, "trace"), t, "rest", f)
	if !called || err != failed || !reflect.DeepEqual(got, want) {
		t.Errorf("called: %v; %+v, %v; want %+v, %v", called, got, err, want, failed)
	}
}

type traceKey struct{}

func TestRouteOfAFunction(t *testing.T) {
	t.Parallel()
	routes := map[string]string{"rest": "/orders/{proxy+}", "httpapi-format-1.0": "/orders/{proxy+}", "httpapi": "POST /orders/{proxy+}"}
	for _, g := range gateways() {
		var route string
		h := g.limit(newLimiter(t, 1), func(r *http.Request) (string, error) {
			route = r.Pattern
			return "all", nil
		})(ok)
		if _, err := h.Invoke(t.Context(), recorded(t, g.recorded)); err != nil || route != routes[g.recorded] {
			t.Errorf("%s: the route is %q, %v; want %q", g.name, route, err, routes[g.recorded])
		}
	}
}

// A login may answer a wrong password by a redirect, back to the form.
func TestChargeFailuresOfFunctions(t *testing.T) {
	t.Parallel()
	for _, g := range gateways() {
		for _, status := range []int{http.StatusOK, http.StatusNoContent, http.StatusSeeOther, http.StatusUnauthorized, http.StatusInternalServerError, 0} {
			l := newLimiter(t, 5)
			attempt := func(succeeds bool, wantStatus int, wantLeft int64) {
				t.Helper()
				h := g.limit(l, handler.ClientIP(), handler.ChargeFailures())(func(ctx context.Context) (int, map[string]string, error) {
					if succeeds {
						handler.Succeeded(ctx)
					}
					return status, nil, nil
				})
				a := g.send(t, h, request(t, "POST", "/login", ""))
				res, err := l.Peek(t.Context(), client)
				if a.status != wantStatus || err != nil || res.Remaining != wantLeft {
					t.Errorf("%s, status %d, succeeds: %v: answered %d, %d left, %v; want %d and %d left",
						g.name, status, succeeds, a.status, res.Remaining, err, wantStatus, wantLeft)
				}
			}
			for range 10 {
				attempt(true, status, 5)
			}
			for left := range 5 {
				attempt(false, status, int64(4-left))
			}
			attempt(true, http.StatusTooManyRequests, 0)
		}
	}
}

func TestHeadersOfAFunctionStay(t *testing.T) {
	t.Parallel()
	for _, g := range gateways() {
		// Shared by all invocations, as a variable of a package would be.
		shared := map[string]string{
			"ratelimit-policy":              `"own";q=1;w=1`,
			"RateLimit":                     `"own";r=1`,
			"X-RATELIMIT-LIMIT":             "own",
			"access-control-expose-headers": "X-Own",
			"X-Own":                         "yes",
		}
		before := maps.Clone(shared)
		h := g.limit(newLimiter(t, 9), handler.ClientIP(), handler.LegacyHeaders(), handler.ExposeHeaders())(func(context.Context) (int, map[string]string, error) {
			return http.StatusOK, shared, nil
		})
		var a reply
		for range 2 { // the second shows what the first has written to
			a = g.send(t, h, request(t, "GET", "/", ""))
		}
		testenv.Equal(t, shared, before, g.name, "the function's map")
		for name, want := range map[string]string{
			"RateLimit-Policy":              `"orders";q=9;w=3600, "own";q=1;w=1`,
			"RateLimit":                     `"orders";r=7;t=400, "own";r=1`,
			"X-RateLimit-Limit":             "own",
			"X-RateLimit-Remaining":         "7",
			"Access-Control-Expose-Headers": "RateLimit-Policy, RateLimit, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Used, X-RateLimit-Reset, X-RateLimit-Resource, X-Own",
			"X-Own":                         "yes",
		} {
			testenv.Equal(t, strings.Join(a.header.Values(name), ", "), want, g.name, name)
		}
	}
}

func TestHeadersJoin(t *testing.T) {
	t.Parallel()
	response := func(own events.APIGatewayProxyResponse, opts ...handler.Option) events.APIGatewayProxyResponse {
		t.Helper()
		limit := awslambda.LimitREST(newLimiter(t, 9), handler.ClientIP(), opts...)
		got, err := invoke(t.Context(), t, "rest", limit(func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
			return own, nil
		}))
		must(t, err)
		return got
	}
	skip, none := handler.Skip(func(*http.Request) bool { return true }), events.APIGatewayProxyResponse{}
	testenv.Equal(t, response(none, skip), none, "a skipped response")
	own, want := none, none
	own.Headers, want.Headers = map[string]string{"RateLimit": `"own";r=1`}, map[string]string{"RateLimit": `"orders";r=8;t=400, "own";r=1`}
	own.MultiValueHeaders = map[string][]string{"Ratelimit-Policy": {`"own";q=1;w=1`}, "Vary": {"Accept", "Origin"}}
	want.MultiValueHeaders = map[string][]string{"Ratelimit-Policy": {`"orders";q=9;w=3600`, `"own";q=1;w=1`}, "Vary": {"Accept", "Origin"}}
	testenv.Equal(t, response(own), want, "the response")
}

// If the limiter is skipped or only tried, the event must reach the function, which need not read its path.
func TestUndecodableEvents(t *testing.T) {
	for _, broken := range []struct{ path, body, why string }{ // why is in the log
		{"/orders/%zz", "", "the path has an invalid escape"},
		{"/orders/%2", "", "the path has an invalid escape"},
		{"/orders/%", "", "the path has an invalid escape"},
		{"/orders", "the message", "the body is not valid base64"},
	} {
		var errs []error
		onError := handler.OnError(func(_ *http.Request, err error) { errs = append(errs, err) })
		skip := handler.Skip(func(r *http.Request) bool { return r.URL.Path == broken.path && r.ContentLength == 0 })
		for _, g := range gateways() {
			if strings.HasPrefix(g.name, "HTTP API") && broken.body == "" {
				continue // the path is unescaped already
			}
			event := g.event(request(t, "GET", "/", ""), "")
			maps.Copy(event, map[string]any{"path": broken.path, "rawPath": broken.path, "body": broken.body, "isBase64Encoded": broken.body != ""})
			payload, err := json.Marshal(event)
			must(t, err)
			h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
			a := g.answer(t, awslambda.Handler(h, nil), payload)
			if a.status != http.StatusBadRequest || strings.Contains(a.body, "orders") || strings.Contains(a.body, "message") {
				t.Errorf("%s, %s: status %d, %q; want 400 without what was sent", broken.path, g.name, a.status, a.body)
			}
			for _, tt := range []struct {
				name                        string
				opts                        []handler.Option
				status, calls, errors, logs int // of two events
			}{
				{"limited", []handler.Option{onError}, http.StatusBadRequest, 0, 2, 0},
				{"fail open", []handler.Option{onError, handler.FailOpen()}, http.StatusBadRequest, 0, 2, 0},
				{"a dry run", []handler.Option{onError, handler.DryRun()}, http.StatusOK, 2, 2, 0},
				{"skipped", []handler.Option{onError, skip}, http.StatusOK, 2, 0, 0},
				{"without OnError", nil, http.StatusBadRequest, 0, 0, 1},
			} {
				for _, rules := range [][]handler.Rule{oneRule(t, 1), newRules(t)} {
					t.Run(fmt.Sprintf("%s/%s/%s by %d rules", broken.path, g.name, tt.name, len(rules)), func(t *testing.T) {
						log, calls := testenv.Logged(t), 0
						errs = nil
						rules[len(rules)-1].Key = func(*http.Request) (string, error) {
							t.Error("the event has a key")
							return client, nil
						}
						h := g.limitAll(rules, tt.opts...)(func(ctx context.Context) (int, map[string]string, error) {
							calls++
							return ok(ctx)
						})
						for range 2 {
							testenv.Equal(t, g.answer(t, h, payload).status, tt.status, "status")
						}
						noKeys := slices.IndexFunc(errs, func(err error) bool { return !errors.Is(err, handler.ErrNoKey) }) < 0
						if calls != tt.calls || len(errs) != tt.errors || !noKeys {
							t.Errorf("%d calls, and OnError got %v; want %d, and %d of ErrNoKey", calls, errs, tt.calls, tt.errors)
						}
						text := log.String()
						if strings.Count(text, "\n") != tt.logs || tt.logs > 0 && !(strings.Contains(text, broken.why) && strings.Contains(text, "Skip")) {
							t.Errorf("the log is %q, want %d lines that say %q", text, tt.logs, broken.why)
						}
						for _, rule := range rules {
							if res, err := rule.Limiter.Peek(t.Context(), client); err != nil || res.Remaining != res.Limit {
								t.Errorf("%s has %d left, %v; want %d", rule.Limiter.Name(), res.Remaining, err, res.Limit)
							}
						}
					})
				}
			}
		}
	}
}

var must = testenv.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A limited handler and a limited function respond as the limited handler does on a server.
func TestRefusalsOfEveryGateway(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]func() []handler.Rule{
		"one limiter":  func() []handler.Rule { return oneRule(t, 2) },
		"two limiters": func() []handler.Rule { return newRules(t) },
	} {
		for _, g := range gateways() {
			for way, h := range limited(&g, rules) {
				t.Run(name+"/"+g.name+"/"+way, func(t *testing.T) {
					server := limitedHandler(rules())
					for i, status := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
						want := serverReply(t, server, request(t, "POST", "/orders", "")).comparable()
						testenv.Equal(t, want.status, status, "on a server, request", i)
						testenv.Equal(t, g.send(t, h, request(t, "POST", "/orders", "")).comparable(), want, "request", i)
					}
				})
			}
		}
	}
}

func TestNoHeaderChangesTheKey(t *testing.T) {
	t.Parallel()
	for _, g := range gateways() {
		for way, h := range limited(&g, func() []handler.Rule { return oneRule(t, 1) }) {
			for i, spoofed := range []http.Header{
				{},
				{"X-Forwarded-For": {"203.0.113.1"}},
				{"X-Forwarded-For": {"203.0.113.1, 203.0.113.2"}},
				{"X-Forwarded-For": {"203.0.113.1", "203.0.113.2"}},
				{"X-Forwarded-For": {"203.0.113.1,"}},
				{"X-Forwarded-For": {""}},
				{"X-Real-Ip": {"203.0.113.1"}, "Forwarded": {"for=203.0.113.1"}, "Cf-Connecting-Ip": {"203.0.113.1"}},
			} {
				r := request(t, "GET", "/", "")
				maps.Copy(r.Header, spoofed)
				want := http.StatusTooManyRequests
				if i == 0 {
					want = http.StatusOK
				}
				testenv.Equal(t, g.send(t, h, r).status, want, g.name, way, spoofed)
			}
		}
	}
}

// The attribute routing.http.xff_client_port.enabled adds ports.
func TestALBWithClientPorts(t *testing.T) {
	log := testenv.Logged(t)
	for forwarded, want := range map[string][2]string{ // RemoteAddr and the key
		"203.0.113.1:50000, 192.0.2.1:50001":    {"192.0.2.1", "192.0.2.1"},
		"[2001:db8:1:2::3]:50000":               {"2001:db8:1:2::3", "2001:db8:1:2::/64"},
		"2001:db8:1:2::3":                       {"2001:db8:1:2::3", "2001:db8:1:2::/64"},
		"203.0.113.1:50000, 192.0.2.1:no-port ": {"192.0.2.1:no-port", ""},
	} {
		event := albEvent(request(t, "GET", "/", ""), "", true)
		event["multiValueHeaders"].(map[string][]string)["x-forwarded-for"] = []string{forwarded}
		payload, err := json.Marshal(event)
		must(t, err)
		r, _ := seen(t, payload)
		key, err := handler.ClientIP()(r)
		if r.RemoteAddr != want[0] || key != want[1] || (err == nil) != (key != "") {
			t.Errorf("%s: from %q, with the key %q, %v; want %q", forwarded, r.RemoteAddr, key, err, want)
		}
	}
	testenv.Equal(t, log.String(), "", "the log of ClientIP")
}

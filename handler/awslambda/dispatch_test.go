package awslambda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestOtherEvents(t *testing.T) {
	t.Parallel()
	for _, event := range []string{"other-scheduled", "other-websocket", "other-authorizer", "other-authorizer-2.0"} {
		payload := recorded(t, event)
		h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%s was served as a request", event) })
		if _, err := awslambda.Handler(h, nil).Invoke(t.Context(), payload); !errors.Is(err, awslambda.ErrUnknownEvent) {
			t.Errorf("%s: %v, want ErrUnknownEvent", event, err)
		}
		failed := errors.New("failed")
		other := lambda.NewHandler(func(_ context.Context, got json.RawMessage) (string, error) {
			if !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(payload)) {
				t.Errorf("%s: the other handler got %s", event, got)
			}
			return "done", failed
		})
		if _, err := awslambda.Handler(h, other).Invoke(t.Context(), payload); !errors.Is(err, failed) {
			t.Errorf("%s: %v, want the other handler's error", event, err)
		}
	}
}

// Only AWS has names under on.aws. A custom domain of an HTTP API can hold anything else.
func TestFunctionURLIsKnownByItsDomain(t *testing.T) {
	t.Parallel()
	const url = "abcdefghijklmnopqrstuvwxyz012345.lambda-url.eu-central-1.on.aws"
	for domain, want := range map[string]bool{
		url:                                           true,
		"u1.lambda-url.us-gov-west-1.on.aws":          true,
		"api.lambda-url.example.com":                  false,
		"x.lambda-url.on.aws.example.com":             false,
		url + ".example.com":                          false,
		"lambda-url.eu-central-1.on.aws.":             false,
		"a1b2.execute-api.eu-central-1.amazonaws.com": false,
		"a1b2.execute-api.eu-central-1.on.aws":        false,
	} {
		var ctx context.Context
		h := awslambda.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() }), nil)
		payload := bytes.ReplaceAll(recorded(t, "functionurl"), []byte(url), []byte(domain))
		must(t, testenv.ErrorOf(h.Invoke(t.Context(), payload)))
		if _, got := awslambda.EventFromContext[events.LambdaFunctionURLRequest](ctx); got != want {
			t.Errorf("%s: a function URL: %v, want %v", domain, got, want)
		}
	}
}

func TestUnknownEvents(t *testing.T) {
	t.Parallel()
	h := awslambda.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was served") }), nil)
	for _, payload := range []string{
		``, `{`, `null`, `"text"`, `[]`, `{}`, `{"httpMethod":"GET"}`, `{"httpMethod":"GET","requestContext":{}}`,
		`{"version":"2.0","requestContext":{"http":{}}}`, `{"version":2,"requestContext":{"http":{"method":"GET"}}}`,
		`{"version":"1.0","requestContext":{"http":{"method":"GET"}}}`, `{"requestContext":{"elb":{}}}`,
		`{"messageVersion":"1.0","apiPath":"/","httpMethod":"GET","parameters":[]}`,
	} {
		if out, err := h.Invoke(t.Context(), []byte(payload)); !errors.Is(err, awslambda.ErrUnknownEvent) {
			t.Errorf("%s: %s, %v; want ErrUnknownEvent", payload, out, err)
		}
	}
	out, err := h.Invoke(t.Context(), []byte(`{"httpMethod":"GET","path":7,"requestContext":{"identity":{}}}`))
	var typeError *json.UnmarshalTypeError
	if !errors.As(err, &typeError) || out != nil {
		t.Errorf("%s, %v; want a *json.UnmarshalTypeError", out, err)
	}
}

func TestWrongProgramsPanic(t *testing.T) {
	t.Parallel()
	serves := func(h http.HandlerFunc) func() {
		return func() { _, _ = awslambda.Handler(h, nil).Invoke(t.Context(), recorded(t, "rest")) }
	}
	for name, f := range map[string]func(){
		"Handler":     func() { awslambda.Handler(nil, nil) },
		"REST":        func() { awslambda.REST(nil) },
		"HTTPAPI":     func() { awslambda.HTTPAPI(nil) },
		"FunctionURL": func() { awslambda.FunctionURL(nil) },
		"ALB":         func() { awslambda.ALB(nil) },
		"LimitALB":    func() { awslambda.LimitALB(newLimiter(t, 1), handler.ClientIP())(nil) },
		"LimitAllALB": func() { awslambda.LimitAllALB(newRules(t))(nil) },
		"no rules":    func() { awslambda.LimitAllREST(nil) },
		"no rule key": func() { awslambda.LimitAllHTTPAPI([]handler.Rule{{Limiter: newLimiter(t, 1)}}) },
		"no limiter":  func() { awslambda.LimitREST(nil, handler.ClientIP()) },
		"no key":      func() { awslambda.LimitREST(newLimiter(t, 1), nil) },
		"no refunds": func() {
			awslambda.LimitHTTPAPI(noRefunds{newLimiter(t, 1)}, handler.ClientIP(), handler.ChargeFailures())
		},
		"a panic of the handler": serves(func(http.ResponseWriter, *http.Request) { panic("a bug") }),
		"the status 0":           serves(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(0) }),
		"a status below 100":     serves(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(99) }),
		"a status beyond 999":    serves(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1000) }),
	} {
		if !panics(f) {
			t.Errorf("%s: no panic", name)
		}
	}
}

// noRefunds is a limiter without the method RefundOf.
type noRefunds struct{ handler.Limiter }

package awslambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestUnreadableEventsAreLogged(t *testing.T) {
	for _, g := range gateways() {
		log := testenv.Logged(t)
		h := g.limit(newLimiter(t, 1), handler.ClientIP())(ok)
		event := g.event(request(t, "GET", "/", ""), "")
		event["body"], event["isBase64Encoded"] = "{}", true
		payload, err := json.Marshal(event)
		must(t, err)
		for range 2 {
			must(t, testenv.ErrorOf(h.Invoke(t.Context(), payload)))
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "the body is not valid base64") || !strings.Contains(text, "Skip") {
			t.Errorf("%s: the log is %q, want one line that says why", g.name, text)
		}
	}
}

// A limiter that decides nothing must not refuse, either. The function takes the event and
// need not read its path.
func TestUndecodableEvents(t *testing.T) {
	t.Parallel()
	skip := func(r *http.Request) bool { return r.URL.Path == "/%zz" || r.ContentLength == 0 }
	tests := []struct {
		name   string
		opts   []handler.Option
		status int
		errs   int // that OnError gets
	}{
		{"limited", nil, http.StatusBadRequest, 1},
		{"fail open", []handler.Option{handler.FailOpen()}, http.StatusBadRequest, 1},
		{"a dry run", []handler.Option{handler.DryRun()}, http.StatusOK, 1},
		{"skipped", []handler.Option{handler.Skip(skip)}, http.StatusOK, 0},
	}
	for _, g := range gateways() {
		for broken, change := range map[string]map[string]any{
			"path": {"path": "/%zz", "rawPath": "/%zz"},
			"body": {"body": "{}", "isBase64Encoded": true},
		} {
			if g.name == "HTTP API, format 1.0" || g.name == "HTTP API" {
				if broken == "path" {
					continue // it is unescaped already
				}
			}
			for _, tt := range tests {
				l := newLimiter(t, 1)
				errs, calls := 0, 0
				opts := append(slices.Clone(tt.opts), handler.OnError(func(_ *http.Request, err error) {
					if errs++; !errors.Is(err, handler.ErrNoKey) {
						t.Errorf("%s, %s, %s: OnError got %v", g.name, broken, tt.name, err)
					}
				}))
				h := g.limit(l, handler.ClientIP(), opts...)(func(ctx context.Context) (int, map[string]string, error) {
					calls++
					return ok(ctx)
				})
				event := g.event(request(t, "GET", "/", ""), "")
				maps.Copy(event, change)
				payload, err := json.Marshal(event)
				must(t, err)
				out, err := h.Invoke(t.Context(), payload)
				must(t, err)
				a := g.read(t, out)
				if a.status != tt.status || (calls == 1) != (tt.status == http.StatusOK) || errs != tt.errs {
					t.Errorf("%s, %s, %s: status %d, %d calls, %d errors; want %d and %d errors", g.name, broken, tt.name, a.status, calls, errs, tt.status, tt.errs)
				}
				if res, err := l.Peek(t.Context(), client); err != nil || res.Remaining != 1 {
					t.Errorf("%s, %s, %s: %d left, %v; want nothing charged", g.name, broken, tt.name, res.Remaining, err)
				}
			}
		}
	}
}

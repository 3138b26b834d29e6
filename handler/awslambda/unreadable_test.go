package awslambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
	"github.com/sqlimit/limiter/internal/testenv"
)

// A limiter that decides nothing must not refuse, either. The function takes the event and
// need not read its path. The test sets the default logger, so it is not parallel.
func TestUndecodableEvents(t *testing.T) {
	for _, broken := range []struct {
		path, body string
		base64     bool
		why        string // in the log
	}{
		{"/orders/%zz", "", false, "the path has an invalid escape"},
		{"/orders/%2", "", false, "the path has an invalid escape"},
		{"/orders/%", "", false, "the path has an invalid escape"},
		{"/orders", "the message", true, "the body is not valid base64"},
	} {
		var errs []error
		onError := handler.OnError(func(_ *http.Request, err error) { errs = append(errs, err) })
		skip := handler.Skip(func(r *http.Request) bool { return r.URL.Path == broken.path && r.ContentLength == 0 })
		for _, g := range gateways() {
			if strings.HasPrefix(g.name, "HTTP API") && !broken.base64 {
				continue // the path is unescaped already
			}
			event := g.event(request(t, "GET", "/", ""), "")
			maps.Copy(event, map[string]any{"path": broken.path, "rawPath": broken.path, "body": broken.body, "isBase64Encoded": broken.base64})
			payload, err := json.Marshal(event)
			must(t, err)
			t.Run(broken.path+"/"+g.name+"/a handler is not called", func(t *testing.T) {
				h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
				a := g.answer(t, awslambda.Handler(h, nil), payload)
				if a.status != http.StatusBadRequest || strings.Contains(a.body, "orders") || strings.Contains(a.body, "message") {
					t.Errorf("status %d, %q; want 400 without what was sent", a.status, a.body)
				}
			})
			for _, tt := range []struct {
				name         string
				opts         []handler.Option
				status       int
				errors, logs int // of two events
			}{
				{"limited", []handler.Option{onError}, http.StatusBadRequest, 2, 0},
				{"fail open", []handler.Option{onError, handler.FailOpen()}, http.StatusBadRequest, 2, 0},
				{"a dry run", []handler.Option{onError, handler.DryRun()}, http.StatusOK, 2, 0},
				{"skipped", []handler.Option{onError, skip}, http.StatusOK, 0, 0},
				{"without OnError", nil, http.StatusBadRequest, 0, 1},
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
						for i := range 2 {
							want := 0
							if tt.status == http.StatusOK {
								want = i + 1
							}
							if a := g.answer(t, h, payload); a.status != tt.status || calls != want {
								t.Errorf("event %d: status %d, %d calls; want %d, %d", i, a.status, calls, tt.status, want)
							}
						}
						if len(errs) != tt.errors || slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, handler.ErrNoKey) }) {
							t.Errorf("OnError got %v, want %d of ErrNoKey", errs, tt.errors)
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

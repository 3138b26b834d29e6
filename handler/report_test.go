package handler_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestFailuresAreLoggedOnceAMinute(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("limiter %q: %w: no tables", "fake", limiter.ErrMisconfigured),
		limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrInvalid, errors.New("of no class"),
	} {
		for name, opts := range map[string][]handler.Option{"": nil, "fail open": {handler.FailOpen()}, "dry run": {handler.DryRun()}} {
			log := testenv.Logged(t)
			synctest.Test(t, func(*testing.T) {
				h := handler.New(fails(err), oneKey, opts...)(&nextHandler{})
				for range 20 {
					ask(h)
					<-time.After(3*time.Second - 1) // a minute, but for 20 ns
				}
			})
			text := log.String()
			if strings.Count(text, "\n") != 1 {
				t.Errorf("%v, %s: logged %s, want one line", err, name, text)
			}
			if !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "limiter=fake") || !strings.Contains(text, strings.ReplaceAll(err.Error(), `"`, `\"`)) {
				t.Errorf("%v: the log does not say which limiter failed and why: %s", err, text)
			}
			if strings.Contains(text, "everybody") {
				t.Errorf("%v: the log holds the key: %s", err, text)
			}
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
	if log.Len() > 0 {
		t.Errorf("logged: %s", log)
	}
}

package limiterslog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/limiterslog"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/sqlite"
)

// newLogger returns a logger and what it writes. The lines have no time.
func newLogger() (*slog.Logger, *bytes.Buffer) {
	buf := new(bytes.Buffer)
	return slog.New(slog.NewTextHandler(buf, &slog.HandlerOptions{ReplaceAttr: withoutTime})), buf
}

// fails is a store that fails.
type fails struct{ err error }

func (f fails) Do(context.Context, limiter.Op) (limiter.State, error) { return limiter.State{}, f.err }

func newLimiter(t testing.TB, store limiter.Store, name string, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(store, name, limiter.PerDay(2), opts...)
	testenv.Must(t, err)
	return l
}

func TestOneLineAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger, out := newLogger()
		log := limiterslog.New(logger)
		const line = `level=ERROR msg="the rate limiter failed" limiter=l error="limiter: not applied"`
		for _, call := range []struct {
			after time.Duration
			want  string
		}{
			{0, line + "\n"},
			{0, ""},
			{30 * time.Second, ""},
			{30*time.Second - 1, ""},
			{1, line + " suppressed=3\n"},
			{time.Minute - 1, ""},
			{1, line + " suppressed=1\n"},
			{time.Minute, line + "\n"},
			{24 * time.Hour, line + "\n"},
		} {
			<-time.After(call.after)
			log.Error(t.Context(), "l", limiter.ErrNotApplied)
			if got := out.String(); got != call.want {
				t.Errorf("after %v more: logged %q, want %q", call.after, got, call.want)
			}
			out.Reset()
		}
	})
}

func TestEachLimiterAndClassHasItsLines(t *testing.T) {
	t.Parallel()
	logger, out := newLogger()
	log := limiterslog.New(logger)
	errs := []error{
		limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrInvalid,
		limiter.ErrNoPolicy, errors.ErrUnsupported, errors.New("of no class"),
		fmt.Errorf("%w: of several classes: %w", limiter.ErrNotApplied, limiter.ErrMisconfigured), // counts as misconfigured
	}
	for range 3 {
		for _, name := range []string{"a", "b"} {
			for i, err := range errs {
				log.Error(t.Context(), name, fmt.Errorf("%w: %d", err, i))
			}
		}
	}
	if got, want := strings.Count(out.String(), "\n"), 2*(len(errs)-1); got != want {
		t.Errorf("%d lines, want %d:\n%s", got, want, out)
	}
	for _, name := range []string{"a", "b"} {
		for i, err := range errs[:len(errs)-1] {
			if line := fmt.Sprintf("limiter=%s error=%q\n", name, fmt.Sprintf("%v: %d", err, i)); !strings.Contains(out.String(), line) {
				t.Errorf("no line %s", line)
			}
		}
	}
}

func TestWarn(t *testing.T) {
	t.Parallel()
	logger, out := newLogger()
	log := limiterslog.New(logger)
	for range 3 {
		for _, cause := range []string{"no key", "too costly"} {
			log.Warn(t.Context(), "l", cause, fmt.Errorf("%w: %s", limiter.ErrExceedsCapacity, cause))
		}
		log.Error(t.Context(), "l", limiter.ErrNotApplied)
	}
	const warning = `level=WARN msg="the rate limiter rejected a request that can never pass" limiter=l error="limiter: cost exceeds capacity: `
	want := warning + "no key\"\n" + warning + "too costly\"\n" + `level=ERROR msg="the rate limiter failed" limiter=l error="limiter: not applied"` + "\n"
	if got := out.String(); got != want {
		t.Errorf("logged %s\nwant %s", got, want)
	}
}

func TestRefusalsAreNotLogged(t *testing.T) {
	t.Parallel()
	logger, out := newLogger()
	observe := limiter.WithObserver(limiterslog.Observer(logger))
	for _, store := range []limiter.Store{
		memory.New(),
		fails{limiter.ErrCanceled},
		fails{fmt.Errorf("%w: %w", limiter.ErrOutcomeUnknown, limiter.ErrCanceled)},
		fails{fmt.Errorf("%w: %w", limiter.ErrNotApplied, limiter.ErrKeyBusy)},
	} {
		l := newLimiter(t, store, "l", observe)
		for range 5 {
			_, _ = l.Allow(t.Context(), "key")
		}
	}
	for _, err := range []error{limiter.ErrExceedsCapacity, limiter.ErrExceedsMaxWait} {
		limiterslog.New(logger).Error(t.Context(), "l", err)
	}
	if out.Len() > 0 {
		t.Errorf("logged %s", out)
	}
}

func TestWhatAFailurePolicyHidesIsLogged(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]limiter.Option{
		"closed": limiter.FailClosed(), "open": limiter.FailOpen(), "local": limiter.FailLocal(memory.New()),
	} {
		logger, out := newLogger()
		l := newLimiter(t, fails{fmt.Errorf("%w: connection refused", limiter.ErrNotApplied)}, name,
			opt, limiter.WithObserver(limiterslog.Observer(logger)))
		for range 3 {
			_, _ = l.Allow(t.Context(), "key")
		}
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "limiter="+name) || !strings.Contains(got, "connection refused") {
			t.Errorf("%s: logged %q, want one line with the reason", name, got)
		}
	}
}

func TestMissingTablesAreLogged(t *testing.T) {
	t.Parallel()
	const key = "alice-9f31c2-and-more@example.com"
	store, err := sqlite.Open(t.TempDir() + "/empty.db")
	testenv.Must(t, err)
	defer store.Close()
	logger, out := newLogger()
	l := newLimiter(t, store, "login", limiter.WithObserver(limiterslog.Observer(logger)))
	if err := l.Reset(t.Context(), key); !errors.Is(err, limiter.ErrMisconfigured) || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("Reset: %v, logged %q, want one line", err, out)
	}
	for range 20 {
		if _, err := l.Allow(t.Context(), key); !errors.Is(err, limiter.ErrMisconfigured) {
			t.Fatal(err)
		}
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "migrations.Up") {
		t.Errorf("logged %q, want one line with the advice", got)
	}
	if found := keyleak.Of(key).In(out.Bytes()); len(found) > 0 {
		t.Errorf("the key is in the log as %v: %s", found, out)
	}
}

// It sets the default logger, so it is not parallel.
func TestWithoutALoggerTheDefaultOneIsUsed(t *testing.T) {
	zero, none := new(limiterslog.Log), limiterslog.New(nil)
	out := testenv.Logged(t)
	zero.Error(t.Context(), "zero", limiter.ErrNotApplied)
	none.Error(t.Context(), "none", limiter.ErrNotApplied)
	if got := out.String(); !strings.Contains(got, "limiter=zero") || !strings.Contains(got, "limiter=none") {
		t.Errorf("logged %q", got)
	}
}

func TestConcurrentErrorsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger, out := newLogger()
		log := limiterslog.New(logger)
		var all sync.WaitGroup
		for range 1600 {
			all.Go(func() { log.Error(t.Context(), "l", limiter.ErrOutcomeUnknown) })
		}
		all.Wait()
		<-time.After(time.Minute)
		log.Error(t.Context(), "l", limiter.ErrOutcomeUnknown)
		if got := out.String(); strings.Count(got, "\n") != 2 || !strings.HasSuffix(got, " suppressed=1599\n") {
			t.Errorf("logged %q", got)
		}
	})
}

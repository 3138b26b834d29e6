package limiterslog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
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
			testenv.Equal(t, out.String(), call.want, "after", call.after, "more")
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
	log.Error(t.Context(), "too costly", limiter.ErrExceedsCapacity) // of the request, so it is not logged
	log.Error(t.Context(), "too late", limiter.ErrExceedsMaxWait)
	var want strings.Builder
	for again := range 3 {
		for _, name := range []string{"a", "b"} {
			for i, err := range errs {
				log.Error(t.Context(), name, fmt.Errorf("%w: %d", err, i))
				if again == 0 && i < len(errs)-1 {
					fmt.Fprintf(&want, "level=ERROR msg=\"the rate limiter failed\" limiter=%s error=\"%v: %d\"\n", name, err, i)
				}
			}
		}
	}
	testenv.Equal(t, out.String(), want.String(), "logged")
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
	testenv.Equal(t, out.String(), want, "logged")
}

func TestObserver(t *testing.T) {
	t.Parallel()
	const key = "alice-9f31c2-and-more@example.com"
	down := fails{fmt.Errorf("%w: connection refused", limiter.ErrNotApplied)}
	empty, err := sqlite.Open(t.TempDir() + "/empty.db")
	testenv.Must(t, err)
	defer empty.Close()
	for name, tt := range map[string]struct {
		store  limiter.Store
		opt    limiter.Option
		reason string // in one line of the log; "" is for none
	}{
		"a refusal":                     {memory.New(), limiter.FailClosed(), ""},
		"a caller that left":            {fails{limiter.ErrCanceled}, limiter.FailClosed(), ""},
		"a caller that left in between": {fails{fmt.Errorf("%w: %w", limiter.ErrOutcomeUnknown, limiter.ErrCanceled)}, limiter.FailClosed(), ""},
		"a busy key":                    {fails{fmt.Errorf("%w: %w", limiter.ErrNotApplied, limiter.ErrKeyBusy)}, limiter.FailClosed(), ""},
		"a failure":                     {down, limiter.FailClosed(), "connection refused"},
		"a failure that FailOpen hides": {down, limiter.FailOpen(), "connection refused"},
		"one that FailLocal hides":      {down, limiter.FailLocal(memory.New()), "connection refused"},
		"missing tables":                {empty, limiter.FailClosed(), "migrations.Up"},
	} {
		logger, out := newLogger()
		l, err := limiter.New(tt.store, "login", limiter.PerDay(2), tt.opt, limiter.WithObserver(limiterslog.Observer(logger)))
		testenv.Must(t, err)
		lines := min(1, len(tt.reason))
		for i := range 20 {
			if i == 0 {
				err = l.Reset(t.Context(), key)
			} else {
				_, err = l.Allow(t.Context(), key)
			}
			if tt.store == empty && !errors.Is(err, limiter.ErrMisconfigured) {
				t.Fatalf("%s: %v, want ErrMisconfigured", name, err)
			}
			got := out.String()
			if strings.Count(got, "\n") != lines || !strings.Contains(got, tt.reason) || lines > 0 && !strings.Contains(got, "limiter=login ") {
				t.Fatalf("%s: logged %q after %d operations, want %d lines with the reason %q", name, got, i+1, lines, tt.reason)
			}
			testenv.Equal(t, keyleak.Of(key).In(out.Bytes()), nil, name, "traces of the key in the log", got)
		}
	}
}

// It sets the default logger, so it is not parallel.
func TestWithoutALoggerTheDefaultOneIsUsed(t *testing.T) {
	zero, none := new(limiterslog.Log), limiterslog.New(nil)
	out := testenv.Logged(t)
	zero.Error(t.Context(), "zero", limiter.ErrNotApplied)
	none.Error(t.Context(), "none", limiter.ErrNotApplied)
	testenv.Contains(t, out.String(), "limiter=zero", "limiter=none")
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

func ExampleObserver() {
	store := fails{fmt.Errorf("%w: connection refused", limiter.ErrNotApplied)} // in your program: of package postgres
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))

	logins, err := limiter.New(store, "login", limiter.PerMinute(5),
		limiter.FailOpen(), limiter.WithObserver(limiterslog.Observer(logger)))
	if err != nil {
		log.Fatal(err)
	}
	for range 1000 { // one line a minute
		if res, err := logins.Allow(context.Background(), "alice@example.com"); err != nil || !res.Allowed {
			log.Fatal(res, err)
		}
	}
	// Output:
	// level=ERROR msg="the rate limiter failed" limiter=login error="limiter \"login\": limiter: not applied: connection refused"
}

// withoutTime removes the time, which would differ each time.
func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

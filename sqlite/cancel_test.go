package sqlite_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

// A caller that goes learns whether its take may have been charged. With the pools of Open one whose
// take shares no transaction always learns that it was not: a statement that has begun runs to its end.
func TestCanceledTakesAreCountedOnceOrNotAtAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		store   *sqlite.Store
		unknown bool // whether an outcome may be unknown
	}{
		{"file", openFile(t), false},
		{"memory", openPath(t, ":memory:"), true},
		{"own pool", newStore(t, openPool(t, "&_journal_mode=WAL")), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLimiter(t, c.store, "l", limiter.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour}, at(t0))
			var allowed, unknown int64
			for i := range 600 {
				ctx, cancel := context.WithCancel(t.Context())
				timer := time.AfterFunc(time.Duration(i)*time.Microsecond/4, cancel)
				r, err := l.Allow(ctx, "key")
				timer.Stop()
				cancel()
				switch {
				case err == nil && r.Allowed:
					allowed++
				case errors.Is(err, limiter.ErrCanceled) && errors.Is(err, limiter.ErrOutcomeUnknown) && c.unknown:
					unknown++
				case errors.Is(err, limiter.ErrCanceled) && !errors.Is(err, limiter.ErrOutcomeUnknown):
				default:
					t.Fatalf("Allow = %+v, %v; want it allowed or ErrCanceled", r, err)
				}
			}
			r, err := l.Peek(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			if r.Used < allowed || r.Used > allowed+unknown {
				t.Errorf("%d were counted; %d were allowed, and of %d it is not known", r.Used, allowed, unknown)
			}
			t.Logf("%d allowed, %d unknown, %d counted", allowed, unknown, r.Used)
		})
	}
}

package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

func TestATimeLimitEndsTheWaitForTheWriteLock(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	closed := newLimiter(t, store, "l", limiter.PerDay(5), limiter.WithTimeout(20*time.Millisecond))
	open := newLimiter(t, store, "l", limiter.PerDay(5), limiter.WithTimeout(20*time.Millisecond), limiter.FailOpen())
	conn := lock(t, store)
	defer conn.Close()

	res, err := closed.Allow(t.Context(), "key")
	if !errors.Is(err, limiter.ErrNotApplied) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, limiter.ErrCanceled) {
		t.Errorf("Allow beside a writer: %v; want ErrNotApplied and DeadlineExceeded", err)
	}
	if res.Allowed || res.Source != limiter.SourcePolicy {
		t.Errorf("FailClosed answers %+v", res)
	}
	if res, err := open.Allow(t.Context(), "key"); err != nil || !res.Allowed || res.Source != limiter.SourcePolicy {
		t.Errorf("FailOpen answers %+v, %v", res, err)
	}

	// A caller's deadline leaves time for the answer. If it leaves less than the time limit,
	// the store did not fail.
	for limit, passes := range map[time.Duration]bool{250 * time.Millisecond: true, time.Hour: false} {
		open := newLimiter(t, store, "l", limiter.PerDay(5), limiter.WithTimeout(limit), limiter.FailOpen())
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		res, err := open.Allow(ctx, "key")
		if res.Allowed != passes || errors.Is(err, limiter.ErrCanceled) == passes || limiter.StoreFailed(err) {
			t.Errorf("FailOpen with a limit of %v under a deadline answers %+v, %v", limit, res, err)
		}
		if ctx.Err() != nil {
			t.Error("the answer came after the caller's deadline")
		}
		cancel()
	}

	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if res, err := closed.AllowN(t.Context(), "key", 5); err != nil || !res.Allowed {
		t.Errorf("AllowN = %+v, %v: what was not applied was charged", res, err)
	}
}

func TestShortTimeLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []time.Duration{100 * time.Microsecond, time.Millisecond, 3 * time.Millisecond} {
		t.Run("leaves the breaker closed: "+limit.String(), func(t *testing.T) {
			t.Parallel()
			store := openFile(t)
			a := newLimiter(t, store, "a", limiter.PerDay(5), limiter.WithTimeout(limit))
			b := newLimiter(t, store, "b", limiter.PerDay(5), limiter.FailOpen())
			conn := lock(t, store)
			defer conn.Close()
			for i := range 10 {
				if _, err := a.Allow(t.Context(), fmt.Sprint(i)); !limiter.StoreFailed(err) {
					t.Errorf("Allow beside a writer: %v", err)
				}
			}
			if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			if r, err := b.Allow(t.Context(), "key"); err != nil || r.Source != limiter.SourceStore {
				t.Errorf("another limiter answers %+v, %v", r, err)
			}
		})
	}
}

package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestSlowKeysWait(t *testing.T) {
	slowly(t, "share the slots with those of other queues", func(t *testing.T, s *sender, q *queue) {
		queues := []*queue{q, open(s, q.config)}
		for i := range 32 {
			ask(t.Context(), queues[i%2], within(5*time.Second, fmt.Sprint("x", i)))
		}
		<-time.After(300 * ms)
		close(s.unlock)
	})
	for _, c := range []struct {
		lock          bool          // a Lock; otherwise a take
		before, limit time.Duration // how long the answered statement before it takes, and its time limit
		want          string
	}{
		{true, ms, timeout, "not applied+row locked"},
		{true, 80 * ms, timeout, "not applied+row locked"},
		{true, 150 * ms, timeout, "not applied+busy+row locked"},
		{true, 0, 60 * ms, "not applied+row locked"},
		{false, ms, 60 * ms, "not applied+row locked"},
	} {
		slowly(t, fmt.Sprintf("are busy or not: %+v", c), func(t *testing.T, s *sender, q *queue) {
			op, wait, sent := take("x", 1), s.before, 0
			s.before = func(ctx context.Context, groups []*batch.Group) error {
				if sent++; sent == 1 && c.before > 0 {
					<-time.After(c.before)
					return nil
				}
				return wait(ctx, groups)
			}
			if c.before > 0 {
				ask(t.Context(), q, op)
			}
			if c.lock {
				wantError(t, q.Lock(limited(t.Context(), t, c.limit), &op), c.want)
			} else {
				ask(t.Context(), q, within(c.limit, "x")).want(t, c.want)
			}
		})
	}
	slowly(t, "are locked beside no other call", func(t *testing.T, s *sender, q *queue) {
		s.takes = 10 * ms
		op := take("a", 1)
		ask(t.Context(), q, op)
		ctx, cancel := context.WithCancel(t.Context())
		left := ask(ctx, q, op)
		locked := lock(t, q, op)
		time.AfterFunc(ms, cancel)
		left.want(t, "canceled")
		ask(t.Context(), q, takes("b a a c")...) // b ends after the first a, so c waits then
		testenv.Must(t, <-locked)                // the key is not slow any more
	})
	slowly(t, "have bounded waits for their rows", func(t *testing.T, s *sender, q *queue) {
		var waits []string
		lock := s.before
		s.before = func(ctx context.Context, groups []*batch.Group) error {
			wait, _ := opcontext.LockWait(ctx)
			s.mu.Lock()
			if len(waits) < 6 {
				waits = append(waits, fmt.Sprint(len(groups), " ", groups[0].Op().Key, " ", wait.Truncate(5*ms)))
			}
			s.mu.Unlock()
			return lock(ctx, groups)
		}
		ask(t.Context(), q, takes("a b c x")...).want(t, "3 took, not applied+row locked")
		// Keys that failed together wait for a quarter. Then x waits for 2/5 of its time.
		slices.Sort(waits)
		testenv.Equal(t, waits, []string{"1 a 20ms", "1 b 20ms", "1 c 5ms", "1 x 5ms", "1 x 75ms", "2 c 50ms"})
	})
	slowly(t, "get no more time behind others", func(t *testing.T, s *sender, q *queue) {
		lock := s.before
		for _, key := range []string{"w", "x"} {
			ask(t.Context(), q, within(60*ms, key)).wait()
		}
		s.before = func(ctx context.Context, groups []*batch.Group) error {
			if groups[0].Op().Key == "w" {
				<-time.After(150 * ms)
				return nil
			}
			return lock(ctx, groups)
		}
		if a := ask(t.Context(), q, takes("w x")...).wait()[1]; a.after > timeout || !errors.Is(a.err, errRow) {
			t.Errorf("%v after %v, want a lock timeout within %v", a.err, a.after, timeout)
		}
	})
}

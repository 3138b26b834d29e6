package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestSlowKeysWait(t *testing.T) {
	slowly(t, "share the slots with those of other queues", func(t *testing.T, s *sender, q *queue) {
		queues := []*queue{q, open(s, q.config)}
		for i := range 8 {
			ask(t.Context(), queues[i%2], within(5*time.Second, fmt.Sprint("x", i)))
		}
		ask(t.Context(), q, takes("u ua a")...).wait()
		close(s.unlock)
	})
	for _, c := range []struct {
		lock          bool          // a Lock; otherwise a take
		before, limit time.Duration // how long the answered statement before it takes, and its time limit
		want          string
	}{
		{true, 80 * ms, timeout, "not applied+row locked"},
		{true, 150 * ms, timeout, "not applied+busy+row locked"},
		{true, 0, 60 * ms, "not applied+row locked"},
		{false, ms, time.Second, "not applied+row locked after 792.496ms"},
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
			wait, queue, _ := opcontext.LockWait(ctx)
			s.mu.Lock()
			if len(waits) < 7 {
				waits = append(waits, fmt.Sprint(len(groups), " ", groups[0].Op().Key, " ", wait.Truncate(5*ms), " ", queue.Truncate(5*ms)))
			}
			s.mu.Unlock()
			return lock(ctx, groups)
		}
		ask(t.Context(), q, within(74*ms, "a")).wait()
		ask(t.Context(), q, takes("a b c x")...).want(t, "3 took, not applied+row locked")
		// Keys that failed together wait for a quarter. Then x waits for 2/5 of its time.
		slices.Sort(waits)
		testenv.Equal(t, waits, []string{"1 a 10ms 25ms", "1 a 20ms 145ms", "1 b 20ms 145ms", "1 c 5ms 135ms", "1 x 5ms 135ms", "1 x 75ms 0s", "2 c 50ms 0s"})
	})
	slowly(t, "are busy if their rows are written meanwhile", func(t *testing.T, s *sender, q *queue) {
		const busy = "not applied+busy+row locked after "
		ask(t.Context(), q, takes("u u")...).want(t, busy+"148.5ms, "+busy+"185.625ms")
		ask(t.Context(), q, within(120*ms, "u")).want(t, busy+"51ms")
		s.age = func(string) time.Duration { return 90 * ms } // longer ago than the wait began, but less than 100 ms
		ask(t.Context(), q, within(100*ms, "x")).want(t, busy+"53.6ms")
		s.age = func(string) time.Duration { return 190 * ms }
		ask(t.Context(), q, take("x", 1)).want(t, busy+"202.496ms")
		s.age = func(string) time.Duration { return 110 * ms }
		ask(t.Context(), q, within(100*ms, "x")).want(t, "not applied+row locked")
		s.age = func(string) time.Duration { return time.Hour }
		ask(t.Context(), q, within(5*time.Second, "u")).want(t, "not applied+row locked after 4.2276s") // 3.71 s in the queue
	})
	for key, want := range map[string]string{"u": "took", "x": "canceled"} {
		slowly(t, "do not end early because of another caller's deadline, "+key, func(t *testing.T, s *sender, q *queue) {
			lock, sent, op := s.before, 0, take(key, 1)
			s.before = func(ctx context.Context, groups []*batch.Group) error {
				if sent++; sent > 1 {
					return lock(ctx, groups)
				}
				<-time.After(150 * ms)
				return nil
			}
			time.AfterFunc(190*ms, func() { close(s.unlock) })
			ask(t.Context(), q, op)
			ctx, cancel := context.WithTimeout(t.Context(), 295*ms) // 44 ms are left after the answer
			defer cancel()
			head := ask(ctx, q, op)
			ask(t.Context(), q, op, op).want(t, "2 took")
			head.want(t, want)
		})
	}
	slowly(t, "leave the line of many keys", func(t *testing.T, s *sender, q *queue) {
		q.config.Slots = batch.NewSlots(5)
		q = open(s, q.config)
		defer ask(t.Context(), q, booking("u"), booking("ua")).want(t, "2 not applied+busy+row locked")
		ask(t.Context(), q, booking("b")).want(t, "took after 21ms")
		defer ask(t.Context(), q, takes("a b c x")...).want(t, "3 took, not applied+row locked") // c and x in one statement
		<-time.After(22 * ms)
		defer ask(t.Context(), q, take("ub", 1)).want(t, "not applied+busy+row locked")
		ask(t.Context(), q, take("a", 1)).want(t, "took after 21ms")
		<-time.After(10 * ms)
		defer ask(t.Context(), q, takes("uc ud")...).want(t, "2 not applied+busy+row locked")
		<-time.After(15 * ms)
		c := ask(t.Context(), q, take("c", 1))
		<-time.After(10 * ms)
		ask(t.Context(), q, take("a", 1)).want(t, "took after 1ms")
		c.want(t, "took after 11ms")
		defer ask(t.Context(), q, takes("ue uf")...).want(t, "2 not applied+busy+row locked")
		ask(t.Context(), q, take("a", 1)).want(t, "took after 101ms") // no slot was free
	})
	slowly(t, "leave it only with a connection", func(t *testing.T, s *sender, q *queue) {
		s.dial = 100 * ms
		ask(t.Context(), q, takes("a u b")...).want(t, "took after 101ms, not applied+busy+row locked after 248.5ms, took after 202ms")
	})
	slowly(t, "get no more time behind others", func(t *testing.T, s *sender, q *queue) {
		lock := s.before
		ask(t.Context(), q, within(60*ms, "w"), within(60*ms, "x")).wait()
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

func TestSlowKeysFail(t *testing.T) {
	const lockTimeout, failedFast = "not applied+row locked", "not applied+failed fast after 0s"
	slowly(t, "fast after a long wait", func(t *testing.T, s *sender, q *queue) {
		op := take("x", 1)
		ask(t.Context(), q, op, op).want(t, "not applied+row locked after 202.496ms, not applied+failed fast after 202.496ms")
		sent := len(s.statements())
		if strings.Contains(s.text(), "*") || !s.counters.Silent() {
			t.Errorf("sent %q, want one operation at a time, and that none counts as an answer", s.text())
		}
		h, began := hold(t.Context(), q, op), time.Now()
		h.want(t, "not applied+failed fast")
		testenv.Equal(t, h.Waited(), false, "the Hold waited")
		wantError(t, q.Lock(t.Context(), &op), "not applied+failed fast")
		ask(t.Context(), q, op).want(t, failedFast)
		if n := len(s.statements()); n != sent || time.Since(began) > 0 {
			t.Errorf("%d statements were sent for them, and it took %v, want none at once", n-sent, time.Since(began))
		}
		<-time.After(100 * ms)
		asks := ask(t.Context(), q, op)
		ask(t.Context(), q, op).want(t, failedFast) // while another one asks
		asks.want(t, lockTimeout)
		<-time.After(70 * ms)
		ask(t.Context(), q, take("w", 1)) // has the slot after 20 ms
		<-time.After(30 * ms)
		again := ask(t.Context(), q, op, op)
		close(s.unlock)
		again.want(t, "took, not applied+failed fast") // after 100 ms
		ask(t.Context(), q, op).want(t, "took")
	})
	slowly(t, "not fast after a short wait", func(t *testing.T, s *sender, q *queue) {
		ask(t.Context(), q, within(60*ms, "x")).want(t, lockTimeout)
		testenv.Equal(t, len(s.statements()), 2, "statements, the second for the rest of the time")
		h := hold(t.Context(), q, take("x", 1))
		h.want(t, lockTimeout) // at once
		testenv.Equal(t, h.Waited(), false, "the Hold waited")
		ask(t.Context(), q, take("x", 1))
		close(s.unlock)
	})
	slowly(t, "at once if the caller leaves", func(t *testing.T, _ *sender, q *queue) {
		op := booking("x") // no unit of a row
		ask(t.Context(), q, within(60*ms, "x")).wait()
		for want, call := range map[string]func(ctx context.Context) error{
			"canceled+unknown": func(ctx context.Context) error { return ask(ctx, q, op).wait()[0].err },
			"canceled":         func(ctx context.Context) error { return q.Lock(limited(ctx, t, timeout), &op) },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*ms, cancel)
			began := time.Now()
			wantError(t, call(ctx), want)
			testenv.Equal(t, time.Since(began), 10*ms)
			<-time.After(400 * ms)
		}
	})
	for _, deadline := range []time.Duration{60 * ms, 150 * ms, 300 * ms} {
		slowly(t, fmt.Sprint("with ErrCanceled within a deadline of ", deadline), func(t *testing.T, s *sender, q *queue) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			for _, a := range ask(ctx, q, takes("x x x u")...).wait() {
				if !errors.Is(a.err, limiter.ErrCanceled) || limiter.StoreFailed(a.err) || errors.Is(a.err, limiter.ErrKeyBusy) {
					t.Errorf("%v after %v, want ErrCanceled", a.err, a.after)
				}
			}
			ask(t.Context(), q, take("x", 1))
			close(s.unlock)
		})
	}
	slowly(t, "fast also if they are hot", func(t *testing.T, s *sender, q *queue) {
		q.config.HotKey = 2
		ask(t.Context(), open(s, q.config), takes("x x x")...).want(t, "not applied+row locked, 2 not applied+failed fast")
	})
	slowly(t, "fast only after a wait of 100 ms by the queue", func(t *testing.T, s *sender, q *queue) {
		ask(t.Context(), q, within(160*ms, "x")).want(t, "not applied+row locked") // after 112 ms, 21 of them in its caller's own statement
		next := ask(t.Context(), q, within(60*ms, "x"))
		close(s.unlock)
		next.want(t, "took")
	})
	t.Run("with an unknown outcome within a short deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		limited := limited(ctx, t, time.Second)
		unknown := fmt.Errorf("%w: the row is locked", limiter.ErrOutcomeUnknown)
		wantError(t, batch.LockError(limited, unknown), "canceled+unknown")
		wantError(t, batch.LockError(limited, errRow), "canceled")
	})
}

func TestBoundingCall(t *testing.T) {
	const h = time.Hour
	for name, c := range map[string]struct {
		limits, deadlines []time.Duration
		want              int
	}{
		"has no short deadline, although others end later":  {[]time.Duration{9 * h, 2 * h, 9 * h}, []time.Duration{3 * h, 9 * h, h}, 1},
		"has no short deadline, although others end before": {[]time.Duration{9 * h, 9 * h, 4 * h}, []time.Duration{3 * h, h, 9 * h}, 2},
		"ends first":                            {[]time.Duration{3 * h, h, 2 * h}, []time.Duration{9 * h, 9 * h, 9 * h}, 1},
		"ends last if all have short deadlines": {[]time.Duration{9 * h, 9 * h, 9 * h}, []time.Duration{h, 3 * h, 2 * h}, 1},
	} {
		ctxs := make([]context.Context, len(c.limits))
		for i, limit := range c.limits {
			ctx, cancel := context.WithTimeout(t.Context(), c.deadlines[i])
			defer cancel()
			ctxs[i] = limited(ctx, t, limit)
		}
		testenv.Equal(t, batch.Bounding(ctxs), c.want, name)
	}
}

package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// errRow is the error of a statement that waited too long for a row lock.
var errRow = fmt.Errorf("%w: the row is locked", limiter.ErrNotApplied)

// locking returns a queue with one slot, and its sender, for which the keys v to z are locked until
// unlock is closed. A statement waits for them as long as its context allows, and twice for v, as behind a waiter.
func locking() (q *queue, s *sender, unlock chan struct{}) {
	s, unlock = &sender{takes: ms}, make(chan struct{})
	s.before = func(ctx context.Context, groups []*batch.Group) error {
		if !slices.ContainsFunc(groups, func(g *batch.Group) bool { return isLocked(g.Op().Key) }) {
			return nil
		}
		wait, _ := opcontext.LockWait(ctx)
		if groups[0].Op().Key == "v" {
			wait *= 2
		}
		select {
		case <-unlock:
			return nil
		case <-time.After(wait):
			return opcontext.LockTimeout(ctx, errRow)
		}
	}
	return open(s, batch.Config{
		Keys: 4, Shared: 2, Single: 2, HotKey: 2, Merges: merges, Deadlines: new(opcontext.Deadlines),
		LockWait: 20 * ms, SharedLockWait: 50 * ms, Slots: batch.NewSlots(1),
		Locked: func(err error) bool { return errors.Is(err, errRow) },
	}), s, unlock
}

func isLocked(key string) bool { return key >= "v" }

func TestSlowKeys(t *testing.T) {
	for name, keys := range map[string][]string{
		"alone":                        {"x", "y", "a", "b", "c", "a"},
		"beside keys of one statement": {"x", "d", "y", "z", "a", "b"},
		"many of them":                 {"x", "d", "v", "w", "y", "zz"},
		"with many callers":            {"x", "x", "x", "y", "y", "y", "z", "z", "z", "a", "a", "a", "b"},
	} {
		slowly(t, "hold up no other key, "+name, func(t *testing.T, q *queue, _ *sender, _ chan struct{}) {
			var ops []limiter.Op
			for _, key := range keys {
				ops = append(ops, take(key, 1))
			}
			for i, a := range ask(t.Context(), q, ops...)() {
				switch key := ops[i].Key; {
				case isLocked(key):
					// The time starts again once, when others in its statement were answered.
					if !limiter.StoreFailed(a.err) && !errors.Is(a.err, limiter.ErrKeyBusy) || a.after > timeout+80*ms {
						t.Errorf("%s, which is locked: %v after %v", key, a.err, a.after)
					}
				case a.err != nil || !a.state.Took || a.after > 200*ms:
					t.Errorf("%s: %v after %v; want it granted within 200 ms", key, a.err, a.after)
				}
			}
		})
	}
	slowly(t, "wait long only with a slot", func(t *testing.T, q *queue, s *sender, _ chan struct{}) {
		ask(t.Context(), q, take("w", 1), take("x", 1), take("y", 1))()
		var long []statement
		for _, st := range s.statements() {
			if len(st.keys) == 1 && st.end.Sub(st.begin) > 21*ms {
				long = append(long, st)
			}
		}
		for i, st := range long {
			if i > 0 && st.begin.Before(long[i-1].end) {
				t.Errorf("%v began while %v waited", st.keys, long[i-1].keys)
			}
		}
		if len(long) < 2 {
			t.Errorf("%d waited, want several", len(long))
		}
	})
	slowly(t, "let a lone caller wait almost until its time limit", func(t *testing.T, q *queue, _ *sender, _ chan struct{}) {
		op := take("x", 1)
		for _, key := range []string{"v", "x"} {
			if a := ask(t.Context(), q, take(key, 1))()[0]; !errors.Is(a.err, errRow) || a.after < timeout*3/4 {
				t.Errorf("Do = %v after %v, want a lock timeout shortly before %v", a.err, a.after, timeout)
			}
		}
		<-time.After(100 * ms)
		limited := new(opcontext.Deadlines).WithTimeout(t.Context(), timeout)
		defer opcontext.Stop(limited)
		_ = opcontext.Begin(limited, false, 20*ms) // as the statement that found the row locked
		began := time.Now()
		if err := q.Lock(limited, &op); !errors.Is(err, errRow) || time.Since(began) < timeout*3/4 {
			t.Errorf("Lock = %v after %v, want a lock timeout shortly before %v", err, time.Since(began), timeout)
		}
	})
	slowly(t, "fail fast after a long wait", func(t *testing.T, q *queue, s *sender, unlock chan struct{}) {
		ask(t.Context(), q, take("x", 1), take("x", 1))()
		sent := len(s.statements())
		for _, a := range ask(t.Context(), q, take("x", 1), take("x", 1))() {
			if !errors.Is(a.err, limiter.ErrNotApplied) || errors.Is(a.err, limiter.ErrKeyBusy) || !batch.FailedFast(a.err) || a.after > 0 {
				t.Errorf("%v after %v, want ErrNotApplied at once", a.err, a.after)
			}
		}
		if n := len(s.statements()); n != sent {
			t.Errorf("%d statements were sent for them, want none", n-sent)
		}
		<-time.After(100 * ms)
		again := ask(t.Context(), q, take("x", 1), take("x", 1))
		close(unlock)
		if answers := again(); answers[0].err != nil || !answers[0].state.Took || !batch.FailedFast(answers[1].err) {
			t.Errorf("after 100 ms: %v and %v, want that the first asks again", answers[0].err, answers[1].err)
		}
		took(t, ask(t.Context(), q, take("x", 1))())
	})
	t.Run("keep an unknown outcome unknown within a short deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		limited := new(opcontext.Deadlines).WithTimeout(ctx, time.Second)
		defer opcontext.Stop(limited)
		for _, class := range []error{limiter.ErrOutcomeUnknown, limiter.ErrNotApplied} {
			err := batch.LockError(limited, class)
			if !errors.Is(err, limiter.ErrCanceled) || errors.Is(err, class) != errors.Is(class, limiter.ErrOutcomeUnknown) {
				t.Errorf("%v becomes %v", class, err)
			}
		}
	})
	slowly(t, "do not fail fast after a short wait", func(t *testing.T, q *queue, _ *sender, unlock chan struct{}) {
		short := take("x", 1)
		short.Timeout = 60 * ms
		ask(t.Context(), q, short)()
		answers := ask(t.Context(), q, take("x", 1))
		close(unlock)
		took(t, answers())
	})
	for _, deadline := range []time.Duration{60 * ms, 150 * ms, 300 * ms} {
		slowly(t, fmt.Sprint("do not fail the store within a deadline of ", deadline), func(t *testing.T, q *queue, _ *sender, unlock chan struct{}) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			for _, a := range ask(ctx, q, take("x", 1), take("x", 1), take("x", 1))() {
				if !errors.Is(a.err, limiter.ErrCanceled) || limiter.StoreFailed(a.err) {
					t.Errorf("%v after %v, want ErrCanceled", a.err, a.after)
				}
			}
			answers := ask(t.Context(), q, take("x", 1))
			close(unlock)
			took(t, answers())
		})
	}
	slowly(t, "are sent again after one had no connection in time", func(t *testing.T, q *queue, s *sender, unlock chan struct{}) {
		short := take("x", 1)
		short.Timeout = 60 * ms // no caller sends it itself
		ask(t.Context(), q, short)()
		s.dial = time.Second // longer than the call at the head may wait
		first := ask(t.Context(), q, short)
		<-time.After(30 * ms)
		second := ask(t.Context(), q, short) // it still waits then
		first()
		second()
		synctest.Wait()
		s.dial = 0
		close(unlock)
		<-time.After(time.Second)
		took(t, ask(t.Context(), q, short)())
	})
	slowly(t, "are not those that had no connection in time", func(t *testing.T, _ *queue, _ *sender, _ chan struct{}) {
		s := &sender{}
		s.connect = func() error {
			<-time.After(timeout)
			return fmt.Errorf("%w: %w", limiter.ErrNotApplied, context.DeadlineExceeded)
		}
		q := open(s, batch.Config{ // as on Citus
			Keys: 1, Shared: 2, Single: 2, Merges: merges, Deadlines: new(opcontext.Deadlines), Slots: batch.NewSlots(1),
			Locked: func(err error) bool { return errors.Is(err, context.DeadlineExceeded) },
		})
		for range 2 {
			if a := ask(t.Context(), q, take("a", 1))()[0]; !errors.Is(a.err, limiter.ErrNotApplied) || batch.FailedFast(a.err) {
				t.Errorf("%v, want ErrNotApplied of a call that asked", a.err)
			}
		}
		if n := q.Keys(); n != 0 {
			t.Errorf("%d keys are remembered, want none", n)
		}
	})
	slowly(t, "are not held", func(t *testing.T, q *queue, _ *sender, unlock chan struct{}) {
		op := take("x", 1)
		first := ask(t.Context(), q, op)
		waits := hold(t.Context(), q, op) // it holds other keys, and must let them go
		if _, err := waits(); !errors.Is(err, batch.ErrRowLocked) {
			t.Errorf("a Hold that waits ends with %v, want ErrRowLocked", err)
		}
		if _, err := hold(t.Context(), q, op)(); !errors.Is(err, batch.ErrRowLocked) {
			t.Errorf("another Hold = %v, want ErrRowLocked", err)
		}
		limited := new(opcontext.Deadlines).WithTimeout(t.Context(), timeout)
		defer opcontext.Stop(limited)
		locked := make(chan error)
		go func() { locked <- q.Lock(limited, &op) }()
		synctest.Wait()
		close(unlock)
		if err := <-locked; err != nil {
			t.Errorf("Lock = %v", err)
		}
		took(t, first())
		if _, err := hold(t.Context(), q, op)(); err != nil {
			t.Errorf("a Hold of the free row = %v", err)
		}
		q.Release(&op, true)
	})
	for busy, before := range map[bool]time.Duration{false: ms, true: 150 * ms} { // of the time limit
		slowly(t, fmt.Sprintf("are busy for a Lock after %v behind others: %v", before, busy), func(t *testing.T, q *queue, s *sender, _ chan struct{}) {
			op, wait, sent := take("x", 1), s.before, 0
			s.before = func(ctx context.Context, groups []*batch.Group) error {
				if sent++; sent == 1 {
					<-time.After(before)
					return nil
				}
				return wait(ctx, groups)
			}
			first := ask(t.Context(), q, op)
			limited := new(opcontext.Deadlines).WithTimeout(t.Context(), timeout)
			defer opcontext.Stop(limited)
			if err := q.Lock(limited, &op); errors.Is(err, limiter.ErrKeyBusy) != busy || !errors.Is(err, errRow) {
				t.Errorf("Lock = %v, want a lock timeout, and ErrKeyBusy %v", err, busy)
			}
			took(t, first())
		})
	}
	slowly(t, "are forgotten", func(t *testing.T, q *queue, _ *sender, _ chan struct{}) {
		for _, key := range []string{"x", "y"} {
			ask(t.Context(), q, take(key, 1))()
			if n := q.Keys(); n != 1 {
				t.Errorf("%d keys are remembered after %s, want 1", n, key)
			}
			<-time.After(time.Second)
		}
	})
}

// slowly runs a subtest in a bubble.
func slowly(t *testing.T, name string, test func(t *testing.T, q *queue, s *sender, unlock chan struct{})) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q, s, unlock := locking()
			test(t, q, s, unlock)
			<-time.After(time.Second)
			s.wantIdle(t)
		})
	})
}

package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

// errRow is the error of a statement that waited too long for a row lock.
var errRow = fmt.Errorf("%w: the row is locked", limiter.ErrNotApplied)

// slowly runs a subtest as in does, on a queue with one slot. The keys v to z are locked until s.unlock is closed. A
// statement waits for them as long as its context allows: twice for v, as behind a waiter, and for u in the queue. Rows of u
// are written now, and the others never. The key s.free is unlocked.
func slowly(t *testing.T, name string, test func(t *testing.T, s *sender, q *queue)) {
	t.Helper()
	sub(t, name, func(t *testing.T, s *sender, _ *queue) {
		s.takes, s.unlock = ms, make(chan struct{})
		s.age = func(key string) time.Duration { return time.Duration(key[0]-'u') * time.Hour }
		s.before = func(ctx context.Context, groups []*batch.Group) error {
			if groups[0].Op().Key == s.free || !slices.ContainsFunc(groups, func(g *batch.Group) bool { return isLocked(g.Op().Key) }) {
				return nil
			}
			wait, queue, _ := opcontext.LockWait(ctx)
			switch groups[0].Op().Key[0] {
			case 'u':
				wait = max(queue, wait)
			case 'v':
				wait *= 2
			}
			select {
			case <-s.unlock:
				return nil
			case <-time.After(wait):
				return opcontext.LockTimeout(ctx, errRow)
			}
		}
		test(t, s, open(s, batch.Config{
			Keys: 4, Shared: 2, Single: 2, HotKey: 8, Merges: merges,
			LockWait: 20 * ms, SharedLockWait: 50 * ms, Slots: batch.NewSlots(1), Locked: is(errRow),
		}))
	})
}

func isLocked(key string) bool { return key >= "u" }

func TestSlowKeys(t *testing.T) {
	for name, keys := range map[string]string{
		"alone":                        "x y a b c a",
		"beside keys of one statement": "x d y z a b",
		"many of them":                 "x d v w y zz",
		"with many callers":            "x x x y y y z z z a a a b",
	} {
		slowly(t, "hold up no other key, "+name, func(t *testing.T, _ *sender, q *queue) {
			ops := takes(keys)
			for i, a := range ask(t.Context(), q, ops...).wait() {
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
	slowly(t, "wait long only with a slot", func(t *testing.T, s *sender, q *queue) {
		ask(t.Context(), q, takes("w x y u ua a")...).wait()
		n, end := 0, time.Time{}
		for _, st := range s.statements() {
			if !strings.Contains(st.text, "+") && st.text[0] != 'u' && st.end.Sub(st.begin) > 21*ms {
				n++
				testenv.Equal(t, st.begin.Before(end), false, st.text, "began while another one waited")
				end = st.end
			}
		}
		testenv.Equal(t, n > 1, true, "several waited")
	})
	slowly(t, "let a lone caller wait almost until its time limit", func(t *testing.T, s *sender, q *queue) {
		for _, key := range []string{"v", "x"} {
			if a := ask(t.Context(), q, take(key, 1)).wait()[0]; !errors.Is(a.err, errRow) || a.after < timeout*3/4 {
				t.Errorf("Do = %v after %v, want a lock timeout shortly before %v", a.err, a.after, timeout)
			}
		}
		<-time.After(100 * ms)
		for _, op := range takes("x y") {
			limited := limited(t.Context(), t, timeout)
			_ = opcontext.Begin(limited, false, 20*ms, 0) // as the statement that found the row locked
			began, sent := time.Now(), len(s.statements())
			if err := q.Lock(limited, &op); !errors.Is(err, errRow) || time.Since(began) < timeout*3/4 {
				t.Errorf("Lock = %v after %v, want a lock timeout shortly before %v", err, time.Since(began), timeout)
			}
			if st := s.statements()[sent]; st.end.Sub(st.begin) < 80*ms {
				t.Errorf("Lock first waited for %v, want as long as it can", st.end.Sub(st.begin))
			}
		}
		asks := ask(t.Context(), q, within(10*timeout, "z"))
		<-time.After(4 * timeout)
		ask(t.Context(), q, take("z", 1)).want(t, "not applied+busy")
		asks.want(t, "not applied+row locked")
	})
	slowly(t, "are sent again after one had no connection in time", func(t *testing.T, s *sender, q *queue) {
		short := within(60*ms, "x") // no caller sends it itself
		ask(t.Context(), q, short).wait()
		s.dial = time.Second // longer than the call at the head may wait
		first := ask(t.Context(), q, short)
		<-time.After(30 * ms)
		second := ask(t.Context(), q, short) // it still waits then
		first.wait()
		second.wait()
		synctest.Wait()
		s.dial = 0
		close(s.unlock)
		<-time.After(time.Second)
		ask(t.Context(), q, short).want(t, "took")
	})
	sub(t, "do not include keys without a connection in time", func(t *testing.T, s *sender, _ *queue) {
		s.connect = func(ctx context.Context) error { return pause(ctx, time.Hour, limiter.ErrNotApplied) }
		q := open(s, batch.Config{ // as on Citus
			Keys: 1, Shared: 2, Single: 2, Merges: merges, Slots: batch.NewSlots(1), Locked: is(context.DeadlineExceeded),
		})
		ask(t.Context(), q, take("a", 1)).want(t, "not applied")
		ask(t.Context(), q, take("a", 1)).want(t, "not applied") // it does not fail fast
	})
	slowly(t, "are not held", func(t *testing.T, s *sender, q *queue) {
		op := take("x", 1)
		ask(t.Context(), q, op)
		hold(t.Context(), q, op).want(t, "not applied+row locked") // it holds other keys, and must let them go
		hold(t.Context(), q, op).want(t, "not applied+row locked")
		locked := lock(t, q, op)
		close(s.unlock)
		testenv.Must(t, <-locked)
		hold(t.Context(), q, op).release(t)
	})
}

func TestSlowKeysEnd(t *testing.T) {
	slowly(t, "are asked once if the time limit bounds the wait, and are 1,024 at most", func(t *testing.T, s *sender, q *queue) {
		s.takes, s.before, s.age = 100*ms, failing(errRow, always), nil
		q.config.Keys, q.config.LockWait, q.config.Shared, q.config.Single = 1, 0, 1, 1 // as on Citus
		q = open(s, q.config)
		ctx, cancel := context.WithCancel(t.Context())
		answers, left := ask(t.Context(), q, takes("x x")...), ask(ctx, q, take("x", 1))
		holds := hold(t.Context(), q, take("x", 1))
		cancel()
		left.want(t, "canceled")
		answers.want(t, "not applied+row locked after 100ms, not applied+failed fast after 100ms")
		holds.want(t, "not applied+failed fast")
		s.takes = 0
		for i := range 1023 { // the queue remembers so many slow keys that were asked within a second
			ask(t.Context(), q, take(fmt.Sprint(i), 1)).wait()
			testenv.Equal(t, q.Keys(), 2+i, "remembered keys")
		}
		last := take("last", 1)
		wantError(t, q.Lock(t.Context(), &last), "not applied+row locked") // one more: the queue forgets all idle ones
		testenv.Equal(t, q.Keys(), 1, "remembered keys")
	})
	slowly(t, "are forgotten", func(t *testing.T, s *sender, q *queue) {
		want := func(n int) {
			t.Helper()
			// They do not wait for other keys.
			ask(t.Context(), q, take("a", 1), take("b", 1), booking("c")).want(t, "3 took after 1ms")
			testenv.Equal(t, q.Keys(), n, "remembered keys")
		}
		ask(t.Context(), q, take("w", 1)).wait()
		ask(t.Context(), q, take("x", 1)).wait()
		want(2)
		<-time.After(100 * ms)
		s.free = "x"
		ask(t.Context(), q, take("x", 1)).want(t, "took")
		want(1)
		<-time.After(time.Second)
		ask(t.Context(), q, take("y", 1)).wait()
		want(1)
	})
	slowly(t, "are the store's fault once that is silent", func(t *testing.T, s *sender, q *queue) {
		op := take("x", 1)
		ask(t.Context(), q, within(60*ms, "x")).wait()
		<-time.After(timeout)
		silent := time.Now() // the first connection takes a millisecond after this, the second one minutes
		s.takes, s.connect = time.Hour, func(ctx context.Context) error { return pause(ctx, ms+1000*time.Since(silent), limiter.ErrNotApplied) }
		for range 2 { // in its statement, and then while it connects
			wantError(t, q.Lock(limited(t.Context(), t, timeout), &op), "not applied")
			<-time.After(timeout)
		}
	})
	slowly(t, "are not forgotten while calls wait", func(t *testing.T, s *sender, q *queue) {
		w, y := within(5*time.Second, "w"), within(5*time.Second, "y")
		ask(t.Context(), q, w) // has the slot
		<-time.After(30 * ms)
		ask(t.Context(), q, y, y) // wait for it
		<-time.After(1100 * ms)
		ask(t.Context(), q, take("x", 1)).want(t, "not applied+busy")
		last := ask(t.Context(), q, w, y, y)
		<-time.After(10 * ms)
		close(s.unlock)
		last.want(t, "3 took")
		var end time.Time
		for _, st := range s.statements() {
			if st.text == "w" {
				testenv.Equal(t, st.begin.Before(end), false, "a statement for w began while another one waited")
				end = st.end
			}
		}
	})
}

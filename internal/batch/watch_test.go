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

// locking returns a queue and its sender. A statement of one locked key waits until its time is
// over. A statement of several keys, one of which is locked, fails after 100 ms.
func locking(locked ...string) (*sender, *batch.Queue) {
	s := &sender{takes: 10 * ms}
	s.before = func(ctx context.Context, groups []*batch.Group) error {
		if !slices.ContainsFunc(groups, func(g *batch.Group) bool { return slices.Contains(locked, g.Op().Key) }) {
			return nil
		}
		if len(groups) > 1 {
			<-time.After(100 * ms)
			return limiter.ErrNotApplied
		}
		<-ctx.Done()
		return opcontext.Interrupted(ctx, limiter.ErrNotApplied, nil)
	}
	return s, batch.New(s, batch.Config{Keys: 4, Shared: 2, Single: 2, HotKey: 2, Merges: merges, LockWait: 100 * ms, Deadlines: new(opcontext.Deadlines)})
}

func TestRowsThatSomebodyHasLockedHoldUpNobodyElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, then []string // keys, of which v, w, x, y and z are locked
	}{
		"as many lone takes as there may be statements": {[]string{"x", "y"}, []string{"a", "b", "c", "a"}},
		"takes that went together with them":            {[]string{"x", "d"}, []string{"y", "z", "a", "b"}},
		"takes that went together with many of them":    {[]string{"x", "d"}, []string{"v", "w", "y", "zz"}},
		"hot keys": {[]string{"x", "x", "x", "y", "y", "y", "z", "z", "z"}, []string{"a", "a", "a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				locked := []string{"v", "w", "x", "y", "z"}
				_, q := locking(locked...)
				var ops []limiter.Op
				for _, key := range append(c.first, c.then...) {
					ops = append(ops, take(key, 1))
				}
				for i, a := range ask(t.Context(), q, ops...)() {
					switch key := ops[i].Key; {
					case slices.Contains(locked, key):
						if !limiter.StoreFailed(a.err) && !errors.Is(a.err, limiter.ErrKeyBusy) || a.after < timeout || a.after > timeout+10*ms {
							t.Errorf("%s, which is locked: %v after %v", key, a.err, a.after)
						}
					case a.err != nil || !a.state.Took || a.after > 160*ms:
						t.Errorf("%s: %+v, %v after %v; want it granted within 160ms", key, a.state, a.err, a.after)
					}
				}
				<-time.After(time.Second) // until the last statement has ended
			})
		})
	}
}

func TestWhenLocksAreGoneThereAreAsManyStatementsAsBefore(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"locked together": 0, "locked one after another": 50 * ms} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, q := locking("x", "y")
				x := ask(t.Context(), q, take("x", 1))
				<-time.After(pause)
				ask(t.Context(), q, take("y", 1), take("a", 1))()
				x()
				from := len(s.statements())
				ask(t.Context(), q, take("b", 1), take("c", 1), take("d", 1), take("e", 1), take("f", 1), take("g", 1), take("h", 1))()
				checkInFlight(t, s.statements()[from:], 2)
			})
		})
	}
}

// A leader whose statement waited for a lock does not lead another one, because another leader took
// its place.
func TestALeaderThatWaitedForALockDoesNotComeBackBesideTheOneInItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, q := locking("x")
		booking := func(key string) limiter.Op { // a statement of its own
			op := take(key, 1)
			op.MaxWait = time.Minute
			return op
		}
		keys := func(prefix string) (ops []limiter.Op) {
			for i := range 40 {
				ops = append(ops, booking(fmt.Sprint(prefix, i)))
			}
			return ops
		}
		first := ask(t.Context(), q, append([]limiter.Op{booking("a"), booking("b"), booking("x")}, keys("c")...)...)
		<-time.After(150 * ms)
		ask(t.Context(), q, keys("d")...)()
		first()
		<-time.After(time.Second)
		checkInFlight(t, s.statements(), 2)
	})
}

// checkInFlight checks that no more than most statements were in flight at a time. A statement that
// waited for a lock does not count.
func checkInFlight(t *testing.T, statements []statement, most int) {
	t.Helper()
	statements = slices.DeleteFunc(statements, func(st statement) bool { return st.end.Sub(st.begin) > 100*ms })
	for _, st := range statements {
		n := 0
		for _, other := range statements {
			if !other.begin.After(st.begin) && other.end.After(st.begin) {
				n++
			}
		}
		if n > most {
			t.Fatalf("%d statements were in flight at a time, want at most %d", n, most)
		}
	}
}

func TestAStatementHasAllItsTimeOnceItIsConnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sender{dial: 100 * ms, takes: 10 * ms}
		s.before = func(ctx context.Context, groups []*batch.Group) error {
			if groups[0].Op().Key == "fails" {
				return limiter.ErrNotApplied
			}
			select {
			case <-time.After(190 * ms):
				return nil
			case <-ctx.Done():
				return opcontext.Interrupted(ctx, limiter.ErrOutcomeUnknown, nil)
			}
		}
		q := batch.New(s, batch.Config{Keys: 4, Shared: 1, Single: 1, HotKey: 2, Merges: merges, Deadlines: new(opcontext.Deadlines)})
		took(t, ask(t.Context(), q, take("lone", 1))()) // in its caller's goroutine
		answers := ask(t.Context(), q, take("fails", 1), take("b", 1), take("c", 1))()
		if n := took(t, answers[1:]); n != 2 {
			t.Errorf("%d of the 2 calls of a leader took", n)
		}
	})
}

func TestTheTimeLimitOfTheFirstCallIsNotThatOfTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sender{takes: 10 * ms, dial: 100 * ms}
		q := newQueue(s)
		first := ask(t.Context(), q, take("a", 1), take("b", 1))
		<-time.After(105 * ms)
		short := take("c", 1)
		short.Timeout = 15 * ms
		then := ask(t.Context(), q, short, take("d", 1), take("e", 1))
		took(t, first())
		answers := then()
		if !errors.Is(answers[0].err, limiter.ErrNotApplied) || answers[0].after != short.Timeout {
			t.Errorf("the call with %v: %v after %v", short.Timeout, answers[0].err, answers[0].after)
		}
		if n := took(t, answers[1:]); n != 2 {
			t.Errorf("%d of the 2 calls behind it took", n)
		}
	})
}

package batch_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// in runs a test in a synctest bubble, and checks that it leaves nothing behind.
func in(t *testing.T, test func(t *testing.T, s *sender, q *queue)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sender{takes: 10 * ms}
		test(t, s, newQueue(s))
		s.wantIdle(t)
	})
}

// sub runs a subtest as in does.
func sub(t *testing.T, name string, test func(t *testing.T, s *sender, q *queue)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { in(t, test) })
}

func TestTakesGoTogether(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		// Two statements are in flight at once; later takes wait for the first.
		answers := ask(t.Context(), q, take("d", 1), take("e", 1), take("c", 1), take("a", 1), take("b", 1))()
		if n := took(t, answers); n != 5 {
			t.Errorf("%d took, want 5", n)
		}
		var keys [][]string
		for _, st := range s.statements() {
			keys = append(keys, st.keys)
		}
		slices.SortFunc(keys, slices.Compare) // two of them end at the same instant
		if want := "[[a b c] [d] [e]]"; fmt.Sprint(keys) != want {
			t.Errorf("statements %v, want %s, in the order of their keys", keys, want)
		}
		if last := answers[4].after; last != 2*s.takes {
			t.Errorf("the last answer came after %v, want %v", last, 2*s.takes)
		}
	})
}

func TestTakesOfAKeyAreGrantedInOrder(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		ops := []limiter.Op{take("hot", 90)}
		for range 16 {
			ops = append(ops, take("hot", 1))
		}
		answers := ask(t.Context(), q, ops...)()
		for i, a := range answers {
			if want := i <= 10; a.err != nil || a.state.Took != want {
				t.Errorf("take %d: %+v, want Took %v", i, a, want)
			}
			if i > 0 && i <= 10 {
				full := a.state.Now + int64(90+i)*int64(perHour.Step())
				if a.state.Row.FullAt > full || a.state.Row.FullAt < full-int64(s.takes)*2 {
					t.Errorf("take %d left the bucket full at %d, want %d", i, a.state.Row.FullAt, full)
				}
			}
		}
		// Takes that were not granted beside the others are sent once more.
		units := s.units("hot")
		if fmt.Sprint(units) != "[1 16 6]" {
			t.Errorf("statements of %v units, want 1, 16 and 6", units)
		}
	})
}

func TestTakesOfAKeyGoTogether(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		other := take("k", 1)
		other.Policy = limiter.PerHour(200)
		later := take("k", 1)
		later.At = 1e18
		refund := take("k", 5)
		refund.Kind = limiter.OpRefund
		var equal []bool
		s.before = func(_ context.Context, groups []*batch.Group) error {
			equal = append(equal, groups[0].Equal)
			return nil
		}
		ops := []limiter.Op{take("k", 1), take("k", 1), take("k", 1), take("k", 2), other, later, refund}
		for i, a := range ask(t.Context(), q, ops...)() {
			if a.err != nil || !a.state.Took {
				t.Errorf("operation %d: %+v, %v", i, a.state, a.err)
			}
		}
		took(t, ask(t.Context(), q, take("k", 1), take("k", 1), take("k", 1))())
		units := s.units("k")
		if fmt.Sprint(units, equal) != "[1 3 1 1 1 1 2] [true false true true false true true]" {
			t.Errorf("statements of %v operations, units of one: %v", units, equal)
		}
	})
}

func TestGiveBacksOfAKeyGoTogether(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		op := func(kind limiter.OpKind, cost int64) limiter.Op {
			op := take("k", cost)
			op.Kind = kind
			return op
		}
		refund, reset := op(limiter.OpRefund, 1), op(limiter.OpReset, 0)
		took(t, ask(t.Context(), q, take("k", 5))())
		for i, a := range ask(t.Context(), q, refund, refund, op(limiter.OpRefund, 2), reset, take("k", 1), take("k", 1), refund)() {
			if a.err != nil || !a.state.Took {
				t.Errorf("operation %d: %+v, %v", i, a.state, a.err)
			}
		}
		units := s.units("k")
		// The first goes alone, at once. Of those that wait, no more than three go together.
		if fmt.Sprint(units) != "[1 1 3 2 1]" {
			t.Errorf("statements of %v operations, want 1, 1, 3, 2 and 1", units)
		}
	})
}

func TestOperationsSideBySide(t *testing.T) {
	in(t, func(t *testing.T, _ *sender, q *queue) {
		var ops []limiter.Op
		for i := range 5 {
			op := take(fmt.Sprint("key", i), 1)
			op.MaxWait = time.Second
			ops = append(ops, op)
		}
		answers := ask(t.Context(), q, ops...)()
		if n := took(t, answers); n != 5 {
			t.Errorf("%d took, want 5", n)
		}
		for i, want := range []time.Duration{10 * ms, 10 * ms, 20 * ms, 20 * ms, 30 * ms} { // two at a time
			if got := answers[i].after; got != want {
				t.Errorf("the answer to %d came after %v, want %v", i, got, want)
			}
		}
	})
}

func TestReadDoesNotWaitForItsKey(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		locked := ask(t.Context(), q, take("k", 1), take("k", 1))
		look := take("k", 0)
		look.Kind = limiter.OpLook
		if a := ask(t.Context(), q, look)()[0]; a.err != nil || a.after != s.takes {
			t.Errorf("%v after %v, want an answer after %v", a.err, a.after, s.takes)
		}
		took(t, locked())
	})
}

func TestUndecidedCallIsSentAlone(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.undecided = func(groups []*batch.Group, c *batch.Call) bool { return len(groups) > 1 && c.Op.Key == "b" }
		answers := ask(t.Context(), q, take("x", 1), take("y", 1), take("a", 1), take("b", 1), take("c", 1))()
		if n := took(t, answers); n != 5 {
			t.Errorf("%d took, want 5", n)
		}
		sent := s.statements()
		if last := sent[len(sent)-1]; fmt.Sprint(last.keys) != "[b]" {
			t.Errorf("the last statement was for %v, want b", last.keys)
		}
	})
}

func TestHotKeyIsSentAlone(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		took(t, ask(t.Context(), q, take("x", 1), take("y", 1), take("hot", 1), take("cold", 1), take("hot", 1), take("mild", 1))())
		var sent []map[string]int64
		for _, st := range s.statements() {
			sent = append(sent, st.units)
		}
		for _, want := range []map[string]int64{{"hot": 2}, {"cold": 1, "mild": 1}} {
			if !slices.ContainsFunc(sent, func(units map[string]int64) bool { return maps.Equal(units, want) }) {
				t.Errorf("statements %v, want %v among them", sent, want)
			}
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

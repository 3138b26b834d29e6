package batch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
)

func TestLeaveWhileWaiting(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		ctx, cancel := context.WithCancel(t.Context())
		first := ask(t.Context(), q, take("a", 1), take("b", 1))
		gone := ask(ctx, q, take("a", 1), take("c", 1))
		stays := ask(t.Context(), q, take("a", 1))
		cancel()
		for i, a := range gone() {
			if !errors.Is(a.err, limiter.ErrCanceled) || !errors.Is(a.err, context.Canceled) || errors.Is(a.err, limiter.ErrOutcomeUnknown) {
				t.Errorf("take %d: %v, want ErrCanceled, and nothing unknown", i, a.err)
			}
		}
		if n := took(t, append(first(), stays()...)); n != 3 {
			t.Errorf("%d others took, want 3", n)
		}
		units := map[string]int64{}
		for _, st := range s.statements() {
			for key, n := range st.units {
				units[key] += n
			}
		}
		if !maps.Equal(units, map[string]int64{"a": 2, "b": 1}) {
			t.Errorf("sent %v", units)
		}
	})
}

// A caller leaves in the middle of a run of refunds, behind a statement that the store does not answer:
// an answer would give the refunds their time again, and find the caller gone.
func TestRefundOfACallerWhoLeft(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		refund := take("k", 1)
		refund.Kind = limiter.OpRefund
		took(t, ask(t.Context(), q, take("k", 10))())
		s.before = func(_ context.Context, groups []*batch.Group) error {
			if groups[0].Op().Kind == limiter.OpTake {
				return limiter.ErrNotApplied
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		fails := ask(t.Context(), q, take("k", 1))
		before := ask(t.Context(), q, refund)
		gone := ask(ctx, q, refund)
		after := ask(t.Context(), q, refund)
		cancel()
		if a := gone()[0]; !errors.Is(a.err, limiter.ErrCanceled) || errors.Is(a.err, limiter.ErrOutcomeUnknown) {
			t.Errorf("%v, want ErrCanceled, and nothing unknown", a.err)
		}
		if a := fails()[0]; !errors.Is(a.err, limiter.ErrNotApplied) {
			t.Errorf("%v, want ErrNotApplied", a.err)
		}
		took(t, slices.Concat(before(), after()))
		if units := s.units("k"); fmt.Sprint(units) != "[1 1 2]" {
			t.Errorf("statements of %v operations, want two takes, and two refunds together", units)
		}
	})
}

func TestLeaveInMidStatement(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.takes = 220 * ms // the statement has over 100 ms left when a caller leaves
		ctx, cancel := context.WithCancel(t.Context())
		ask(t.Context(), q, take("a", 1)) // takes that come now have to wait, and go together
		leaves := ask(ctx, q, take("a", 1))
		stays := ask(t.Context(), q, take("a", 1), take("a", 1))
		<-time.After(s.takes + s.takes/2)
		cancel()
		if a := leaves()[0]; !errors.Is(a.err, limiter.ErrCanceled) || !errors.Is(a.err, limiter.ErrOutcomeUnknown) || a.after != s.takes+s.takes/2 {
			t.Errorf("the caller who left: %v after %v, want ErrCanceled and ErrOutcomeUnknown at once", a.err, a.after)
		}
		if n := took(t, stays()); n != 2 {
			t.Errorf("%d of the others took, want 2", n)
		}
		if row := s.rows["a"]; row.FullAt-row.At < 4*int64(perHour.Step())-int64(s.takes)*2 {
			t.Errorf("the caller who left was not charged")
		}
	})
}

func TestLeaveOwnStatement(t *testing.T) {
	for _, c := range []struct {
		name         string
		takes, wants time.Duration
		answers      bool
	}{
		{name: "a statement that ends soon", takes: 60 * ms, wants: 60 * ms, answers: true},
		{name: "a statement that hangs", takes: time.Hour, wants: 105 * ms},
	} {
		sub(t, c.name, func(t *testing.T, s *sender, q *queue) {
			s.takes = c.takes
			ctx, cancel := context.WithCancel(t.Context())
			leaves := ask(ctx, q, take("a", 1))
			follows := ask(t.Context(), q, take("a", 1))
			<-time.After(5 * ms)
			cancel()
			a := leaves()[0]
			if a.after != c.wants || (a.err == nil) != c.answers {
				t.Errorf("%+v, want an answer: %v, after %v", a, c.answers, c.wants)
			}
			if !c.answers && (!errors.Is(a.err, limiter.ErrCanceled) || !errors.Is(a.err, limiter.ErrOutcomeUnknown)) {
				t.Errorf("%v, want ErrCanceled and ErrOutcomeUnknown", a.err)
			}
			if a := follows()[0]; c.answers && !a.state.Took {
				t.Errorf("the next one: %+v", a)
			}
			<-time.After(timeout) // the statement of the next one may go on
		})
	}
}

// Callers leave at every step, while statements fail, wait for locked rows, or leave calls undecided.
func TestReusedCalls(t *testing.T) {
	slowly(t, "know whose they are", func(t *testing.T, q *queue, s *sender, _ chan struct{}) {
		oneIn := func(n int) bool { return rand.IntN(n) == 0 }
		carriedOut := map[int64]int{} // how often, by the ID of the operation
		s.undecided = func(groups []*batch.Group, _ *batch.Call) bool { return len(groups) > 1 && oneIn(5) }
		s.before = func(ctx context.Context, _ []*batch.Group) error {
			switch wait, _ := opcontext.LockWait(ctx); {
			case oneIn(10):
				return limiter.ErrNotApplied
			case oneIn(5):
				<-time.After(wait)
				return opcontext.LockTimeout(ctx, errRow)
			}
			return nil
		}
		s.after = func(_ context.Context, groups []*batch.Group) error {
			for _, g := range groups {
				for _, c := range g.Calls {
					if state := c.State(); c.Decided() {
						state.Taken = c.Op.ID // so that an answer says whose it is
						c.Decide(state)
						carriedOut[c.Op.ID]++
					}
				}
			}
			if oneIn(20) {
				return limiter.ErrOutcomeUnknown
			}
			return nil
		}
		answers := make([]answer, 3000)
		var all sync.WaitGroup
		for i := range answers {
			op := take(string("abcx"[rand.IntN(4)]), 1)
			op.ID, op.Timeout = int64(i), time.Duration(1+rand.IntN(150))*ms
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(rand.IntN(40))*ms, cancel) // statements also take whole milliseconds
			all.Go(func() { answers[i].state, answers[i].err = q.Do(ctx, op) })
			<-time.After(time.Duration(rand.IntN(3)) * ms / 2)
		}
		all.Wait()
		<-time.After(time.Second) // statements whose callers have left
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, a := range answers {
			n, id := carriedOut[int64(i)], a.state.Taken
			known := a.err == nil && n == 1 && id == int64(i) || a.err != nil && n == 0 && id == 0
			if !known && (n > 1 || id != 0 || !errors.Is(a.err, limiter.ErrOutcomeUnknown)) {
				t.Errorf("operation %d got %+v, and was carried out %d times", i, a, n)
			}
		}
	})
}

// checked is a context with another Err.
type checked struct {
	context.Context
	err func() error
}

func (c checked) Err() error { return c.err() }

// The context ends at the n-th call of its Err.
func TestLeaveRightBeforeTheStatement(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		for i := range 400 {
			n, op, before := i%8, take(fmt.Sprint(i), 1), len(s.statements())
			first := ask(t.Context(), q, op)
			ctx, cancel := context.WithCancel(t.Context())
			_, _, err := q.Enter(checked{ctx, func() error {
				if n--; n == 0 {
					cancel()
				}
				return ctx.Err()
			}}, &op)
			cancel()
			first()
			if sent := len(s.statements()) - before; errors.Is(err, limiter.ErrOutcomeUnknown) || sent == 2 != (err == nil) {
				t.Errorf("%v after %d statements, want that it took, or was not sent", err, sent)
			}
		}
	})
}

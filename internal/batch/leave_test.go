package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestLeaveWhileWaiting(t *testing.T) {
	sub(t, "a take", func(t *testing.T, s *sender, q *queue) {
		ctx, cancel := context.WithCancel(t.Context())
		ask(t.Context(), q, takes("a b")...)
		gone := ask(ctx, q, takes("a c")...)
		stays := ask(t.Context(), q, take("a", 1))
		cancel()
		for _, a := range gone.wait() {
			wantError(t, a.err, "canceled")
			testenv.ErrorIs(t, a.err, context.Canceled)
		}
		stays.want(t, "took")
		s.wantSent(t, "a, b, a")
	})
	// The caller leaves in the middle of a run of refunds, behind a statement that the store does not answer:
	// an answer would give the refunds their time again, and find the caller gone.
	sub(t, "a refund", func(t *testing.T, s *sender, q *queue) {
		refund := of(limiter.OpRefund, "k", 1)
		ask(t.Context(), q, take("k", 10)).want(t, "took")
		s.before = failing(limiter.ErrNotApplied, func(g []*batch.Group) bool { return g[0].Op().Kind == limiter.OpTake })
		ctx, cancel := context.WithCancel(t.Context())
		fails := ask(t.Context(), q, take("k", 1))
		ask(t.Context(), q, refund)
		gone := ask(ctx, q, refund)
		after := ask(t.Context(), q, refund)
		cancel()
		gone.want(t, "canceled")
		fails.want(t, "not applied")
		after.want(t, "took")
		s.wantSent(t, "k, k, k*2")
	})
}

func TestLeaveInMidStatement(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.takes = 220 * ms // the statement has over 100 ms left when a caller leaves
		ctx, cancel := context.WithCancel(t.Context())
		ask(t.Context(), q, take("a", 1)) // takes that come now have to wait, and go together
		leaves := ask(ctx, q, take("a", 1))
		stays := ask(t.Context(), q, takes("a a")...)
		<-time.After(s.takes + s.takes/2)
		cancel()
		leaves.want(t, "canceled+unknown after 330ms")
		stays.want(t, "2 took")
		row := s.rows["a"]
		testenv.Equal(t, row.FullAt-row.At >= 4*int64(perHour.Step())-int64(s.takes)*2, true, "the caller who left was charged")
	})
}

func TestLeaveOwnStatement(t *testing.T) {
	for name, c := range map[string]struct {
		takes, limit time.Duration
		want         string
	}{
		"a statement that ends soon": {60 * ms, timeout, "took after 60ms"},
		"a time limit of 100 ms":     {60 * ms, opcontext.Grace, "took after 60ms"},
		"a statement that hangs":     {time.Hour, timeout, "canceled+unknown after 105ms"},
	} {
		sub(t, name, func(t *testing.T, s *sender, q *queue) {
			s.takes = c.takes
			ctx, cancel := context.WithCancel(t.Context())
			leaves := ask(ctx, q, within(c.limit, "a"))
			time.AfterFunc(5*ms, cancel)
			leaves.want(t, c.want)
		})
	}
}

// Callers leave at every step, while statements fail, wait for locked rows, or leave calls undecided.
func TestReusedCalls(t *testing.T) {
	slowly(t, "know whose they are", func(t *testing.T, s *sender, q *queue) {
		oneIn := func(n int) bool { return rand.IntN(n) == 0 }
		carriedOut := map[int64]int{} // how often, by the ID of the operation
		s.undecided = func(groups []*batch.Group, _ *batch.Call) bool { return len(groups) > 1 && oneIn(5) }
		s.before = func(ctx context.Context, _ []*batch.Group) error {
			switch wait, _, _ := opcontext.LockWait(ctx); {
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
		for i := range 600 {
			n, op, before := i/3%8, take(fmt.Sprint(i), 1), len(s.statements())
			first := ask(t.Context(), q, op)
			ctx, cancel := context.WithCancel(t.Context())
			leaves := checked{ctx, func() error {
				if n--; n == 0 {
					cancel()
				}
				return ctx.Err()
			}}
			var err error
			want := 2
			switch i % 3 {
			case 0:
				var h *batch.Hold
				h, err = batch.HoldAll(leaves, []*batch.Queue{q.Queue}, []limiter.Op{op}, true)
				h.End(err)
				want = 1
			case 1:
				op.Kind = limiter.OpRefund
				fallthrough
			default:
				_, _, err = q.Enter(leaves, &op)
			}
			cancel()
			first.wait()
			if err != nil {
				want = 1
			}
			if sent := len(s.statements()) - before; errors.Is(err, limiter.ErrOutcomeUnknown) || sent != want {
				t.Errorf("%v after %d statements, want that it was carried out, or was not sent", err, sent)
			}
		}
		// The context has ended, but the caller notices later. The first statement fails, because an answer would
		// give the call its full time again.
		s.before = failing(limiter.ErrNotApplied, always)
		op, before := take("k", 1), len(s.statements())
		first := ask(t.Context(), q, op)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(timeout, cancel)
		_, _, err := q.Enter(checked{ctx, func() error { return context.Canceled }}, &op)
		first.wait()
		wantError(t, err, "canceled")
		// The context ends while a lone call waits for a connection.
		ctx, cancel = context.WithCancel(t.Context())
		s.connect = func(context.Context) error { cancel(); return nil }
		ask(ctx, q, op).want(t, "canceled")
		testenv.Equal(t, len(s.statements()), before+1, "statements, want only that of the first take")
	})
}

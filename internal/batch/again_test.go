package batch_test

import (
	"context"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/testenv"
)

// A call that waited while the store answered others gets its full time again.
func TestFullTimeAgain(t *testing.T) {
	apart(t, "behind a caller's statement and a leader's", 4, 99, func(t *testing.T, s *sender, q *queue) {
		s.takes = 100 * ms
		ask(t.Context(), q, booking("x"), booking("y"), booking("k")).want(t, "3 took")
	})
	sub(t, "in the line behind a Hold", func(t *testing.T, s *sender, q *queue) {
		s.takes = 140 * ms
		ask(t.Context(), q, booking("x"))
		h := hold(t.Context(), q, take("h", 1))
		h.want(t, "")
		ask(t.Context(), q, booking("y"))
		last := ask(t.Context(), q, booking("k"))
		<-time.After(150 * ms)
		h.End(true, nil)
		last.want(t, "took")
	})
	sub(t, "behind a Hold that waited for another key", func(t *testing.T, s *sender, q *queue) {
		s.takes = 100 * ms
		busy := hold(t.Context(), q, take("b", 1))
		ask(t.Context(), q, take("a", 1))
		h := hold(t.Context(), q, takes("a b")...)
		last := ask(t.Context(), q, within(400*ms, "a"))
		h.want(t, "not applied+busy")
		last.want(t, "took")
		busy.release(t)
	})
	apart(t, "after it failed together with others", 4, 99, func(t *testing.T, s *sender, q *queue) {
		s.takes = 100 * ms
		s.before = failing(limiter.ErrNotApplied, func(g []*batch.Group) bool { return together(g) || has("x")(g) })
		x := ask(t.Context(), q, take("x", 1))
		ask(t.Context(), q, within(time.Second, "a"), within(330*ms, "b"))
		x.want(t, "not applied")
	})
	apart(t, "but not a Hold that begins anew", 4, 99, func(t *testing.T, s *sender, q *queue) {
		s.dial = 30 * ms
		ask(t.Context(), q, booking("x"))
		ctx, leave := context.WithCancel(t.Context())
		left := ask(ctx, q, booking("k"))
		limited, began := limited(t.Context(), t, timeout), time.Now()
		time.AfterFunc(50*ms, leave)
		h, err := batch.HoldAll(limited, []*batch.Queue{q.Queue}, takes("k"), false)
		testenv.Must(t, err)
		left.want(t, "canceled")
		<-limited.Done()
		testenv.Equal(t, time.Since(began), timeout, "the end of the Hold")
		h.End(false, nil)
	})
}

package batch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestKeysTakeTurns(t *testing.T) {
	apart(t, "if more calls of one arrive all the time", 4, 99, func(t *testing.T, s *sender, q *queue) {
		ask(t.Context(), q, booking("x"), booking("a"), booking("a"), booking("b"))
		for range 4 {
			<-time.After(9 * ms)
			ask(t.Context(), q, booking("a"))
		}
		<-time.After(time.Second)
		s.wantSent(t, "x, a*3, b, a*2, a")
	})
	apart(t, "after a Hold of one", 4, 99, func(t *testing.T, s *sender, q *queue) {
		ask(t.Context(), q, booking("x"))
		h := hold(t.Context(), q, booking("a"))
		ask(t.Context(), q, booking("b"), booking("a"))
		h.release(t)
		<-time.After(time.Second)
		s.wantSent(t, "x, b, a")
	})
	apart(t, "if one moves to the other line and back", 1, 2, func(t *testing.T, s *sender, q *queue) {
		s.before = func(_ context.Context, groups []*batch.Group) error {
			if has("first")(groups) {
				<-time.After(100 * ms)
			}
			return nil
		}
		ask(t.Context(), q, takes("first moves b moves")...)
		ask(t.Context(), q, takes("moves moves")...)
		<-time.After(30 * ms)
		ask(t.Context(), q, take("z", 1))
		<-time.After(time.Second)
		s.wantSent(t, "first, moves*2, moves*2, b, z")
	})
	apart(t, "after one was sent alone", 4, 100, func(t *testing.T, s *sender, q *queue) {
		s.before = failing(limiter.ErrInvalid, func(g []*batch.Group) bool { return together(g) && has("bad")(g) })
		ask(t.Context(), q, takes("first bad c")...)
		<-time.After(35 * ms)
		ask(t.Context(), q, takes("y c e")...).want(t, "3 took")
		s.wantSent(t, "first, bad+c, bad, c, y, c+e")
	})
	apart(t, "after a Hold behind takes of several costs", 4, 100, func(t *testing.T, s *sender, q *queue) {
		first := hold(t.Context(), q, take("k", 1))
		ctx, leave := context.WithCancel(t.Context())
		left := ask(ctx, q, take("k", 1))
		h := hold(t.Context(), q, take("k", 1))
		last := ask(t.Context(), q, take("k", 2))
		leave()
		left.want(t, "canceled")
		first.release(t)
		h.want(t, "")
		ask(t.Context(), q, takes("a b")...)
		h.End(true, nil)
		last.want(t, "took")
		s.wantSent(t, "a, b+k")
	})
	slowly(t, "in two queues that share a slot for slow keys", func(t *testing.T, s *sender, q *queue) {
		other := open(s, q.config)
		s.before = func(context.Context, []*batch.Group) error { <-time.After(10 * ms); return nil }
		for i := range 30 {
			op := within(time.Second, fmt.Sprint("a", i))
			defer func(ended <-chan error) { testenv.Must(t, <-ended) }(lock(t, q, op))
		}
		testenv.Must(t, <-lock(t, other, take("b", 1)))
	})
}

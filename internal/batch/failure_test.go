package batch_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestBadRowDecidesForNoOther(t *testing.T) {
	for class, err := range map[string]error{"invalid": limiter.ErrInvalid, "not applied": limiter.ErrNotApplied} {
		sub(t, class, func(t *testing.T, s *sender, q *queue) {
			s.before = failing(err, has("bad"))
			ask(t.Context(), q, takes("x y a bad b")...).want(t, "3 took, "+class+", took")
			s.wantSent(t, "x, y, a+b+bad, a, b, bad")
		})
	}
}

// The error counts, also if the store has decided the calls before.
func TestUnknownOutcomeIsNotSentAgain(t *testing.T) {
	unknown := failing(limiter.ErrOutcomeUnknown, func(g []*batch.Group) bool { return together(g) || has("lone")(g) })
	for name, setUp := range map[string]func(s *sender){
		"before the store decides": func(s *sender) { s.before = unknown },
		"after it has decided":     func(s *sender) { s.after = unknown },
	} {
		sub(t, name, func(t *testing.T, s *sender, q *queue) {
			setUp(s)
			answers := ask(t.Context(), q, takes("lone y a b")...)
			<-time.After(s.takes * 3 / 2)
			ask(t.Context(), q, takes("z c")...).want(t, "2 took") // c waits behind a and b
			answers.want(t, "unknown, took, 2 unknown")
			s.wantSent(t, "lone, y, a+b, z, c")
		})
	}
}

func TestPanic(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.before = func(_ context.Context, groups []*batch.Group) error {
			if together(groups) {
				panic("broken")
			}
			return nil
		}
		ask(t.Context(), q, takes("x y a b")...).want(t, "2 took, 2 unknown")
		s.connect = func(context.Context) error { panic("broken") }
		ask(t.Context(), q, takes("x y")...).want(t, "2 not applied")
		s.connect = nil
		ask(t.Context(), q, take("a", 1)) // the queue goes on
	})
}

func TestNoConnection(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.dial, s.connect = 5*ms, func(context.Context) error { return limiter.ErrNotApplied }
		for i, a := range ask(t.Context(), q, takes("a a b c")...).wait() {
			wantError(t, a.err, "not applied")
			testenv.Equal(t, a.after <= 2*s.dial, true, "take", i, "failed in time, after", a.after)
		}
		if stats := s.counters.Stats(); len(s.statements()) != 0 || stats != (limiter.StoreStats{}) || !s.counters.Silent() {
			t.Errorf("something was sent, answered, or counted: %+v", stats)
		}
		s.connect = nil
		ask(t.Context(), q, take("a", 1)) // the queue goes on
	})
}

// A call gets its full time again if the store answers the operation of ID 1 while the call waits. The operation of
// ID 2 always fails. A statement takes 100 ms. The call's own takes 170 ms, longer than the rest of its time.
func TestFullTimeOnlyBehindAnswers(t *testing.T) {
	op := func(key string, id int64, maxWait time.Duration) limiter.Op {
		op := take(key, 1)
		op.ID, op.MaxWait = id, maxWait
		return op
	}
	const booking = time.Hour // shares no statement with other keys
	for name, c := range map[string]struct {
		ops   []limiter.Op
		pause time.Duration // before the last one arrives
		of    int           // the index of the call
	}{
		"of the caller before it": {ops: []limiter.Op{op("x", 1, 0), op("k", 0, 0)}, of: 1},
		"of the leader before it": {ops: []limiter.Op{op("x", 0, 0), op("y", 1, 0), op("k", 0, 0)}, pause: 110 * ms, of: 2},
		"of its key":              {ops: []limiter.Op{op("x", 0, 0), op("x", 1, 0), op("x", 0, 0)}, pause: 110 * ms, of: 2},
		"of the line that it leaves": {
			ops: []limiter.Op{op("x", 1, 0), op("y", 0, 0), op("k", 0, 0), op("k", 0, booking)}, pause: 150 * ms, of: 2,
		},
		"before one of its key that fails": {ops: []limiter.Op{op("x", 1, booking), op("k", 2, booking), op("k", 0, booking)}, of: 2},
	} {
		for _, answered := range []bool{false, true} {
			sub(t, fmt.Sprintf("%s: %v", name, answered), func(t *testing.T, s *sender, _ *queue) {
				ops := slices.Clone(c.ops)
				ops[c.of].At = 1e18 // so that it gets a statement of its own
				s.takes, s.before = 100*ms, func(_ context.Context, groups []*batch.Group) error {
					switch first := groups[0].Calls[0].Op; {
					case first.At > 0:
						<-time.After(70 * ms)
					case first.ID == 2, first.ID == 1 && !answered:
						return limiter.ErrNotApplied
					}
					return nil
				}
				q := open(s, batch.Config{Keys: 1, Shared: 1, Single: 1, HotKey: 100, Merges: merges})
				before := ask(t.Context(), q, ops[:len(ops)-1]...)
				<-time.After(c.pause)
				last := ask(t.Context(), q, ops[len(ops)-1])
				a := append(before.wait(), last.wait()...)[c.of]
				testenv.Equal(t, a.err == nil, answered, "has an answer:", a.err, "after", a.after)
			})
		}
	}
}

// late is a context that ends in the instant in which a call gets its answer.
type late struct {
	context.Context
	after time.Duration
}

func (l late) Done() <-chan struct{} {
	<-time.After(l.after)
	ended := make(chan struct{})
	close(ended)
	return ended
}

func TestErrorInTheInstantOfTheEnd(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.before = failing(limiter.ErrNotApplied, always)
		for range 40 { // select chooses at random
			op := take("k", 1)
			first := ask(t.Context(), q, op)
			_, _, err := q.Enter(late{t.Context(), 5 * s.takes}, &op)
			wantError(t, err, "not applied")
			first.wait()
		}
	})
}

func TestFailedAfterUndecided(t *testing.T) {
	apart(t, "is not sent once more", 4, 99, func(t *testing.T, s *sender, q *queue) {
		n := 0
		s.undecided = func([]*batch.Group, *batch.Call) bool { return n == 3 }
		s.before = failing(limiter.ErrNotApplied, func([]*batch.Group) bool { n++; return n == 2 || n >= 4 })
		ask(t.Context(), q, take("k", 1))
		ask(t.Context(), q, takes("k k")...).want(t, "2 not applied")
		s.wantSent(t, "k, k*2, k*2, k*2")
	})
}

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
		h.End(nil)
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
		h.End(limiter.ErrNotApplied)
	})
}

package batch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestTakesGoTogether(t *testing.T) {
	// Two statements are in flight at once; later takes wait for the first.
	sub(t, "of several keys, in their order", func(t *testing.T, s *sender, q *queue) {
		ask(t.Context(), q, takes("d e c a b")...).want(t, "2 took after 10ms, 3 took after 20ms")
		s.wantSent(t, "d, e, a+b+c")
	})
	sub(t, "but not with those of a hot key", func(t *testing.T, s *sender, q *queue) {
		ask(t.Context(), q, takes("x y hot cold hot mild")...).want(t, "6 took")
		s.wantSent(t, "hot*2, x, y, cold+mild")
	})
	apart(t, "in the order of limiters and keys", 4, 100, func(t *testing.T, s *sender, q *queue) {
		ops := takes("first b b a a")
		ops[1].Policy, ops[2].Policy = limiter.PerHour(1), limiter.PerHour(1)
		first := ask(t.Context(), q, ops...)
		ops[2].Name, ops[4].Name = "k", "m" // of other limiters
		<-time.After(s.takes + s.takes/2)
		next := ask(t.Context(), q, ops[1:]...) // behind two calls of each key
		first.want(t, "2 took, refused, 2 took")
		next.want(t, "2 refused, 2 took")
		s.wantSent(t, "first, a*2+b*2, b+a+b+a")
	})
	sub(t, "that could not be decided beside others, alone", func(t *testing.T, s *sender, q *queue) {
		s.takes = 160 * ms // each time the call gets its full time again
		s.undecided = func(groups []*batch.Group, c *batch.Call) bool { return len(groups) > 1 && c.Op.Key == "b" }
		first := ask(t.Context(), q, takes("x y a b c")...)
		<-time.After(s.takes * 3 / 2)
		ask(t.Context(), q, takes("z d")...).want(t, "2 took") // d could share a statement with b
		first.want(t, "5 took")
		s.wantSent(t, "x, y, a+b+c, z, b, d")
		testenv.Equal(t, s.counters.Retries.Load(), 0)
	})
}

func TestTakesOfAKeyGoTogether(t *testing.T) {
	sub(t, "and are granted in order", func(t *testing.T, s *sender, q *queue) {
		answers := ask(t.Context(), q, append([]limiter.Op{take("hot", 90)}, slices.Repeat(takes("hot"), 16)...)...)
		answers.want(t, "11 took, 6 refused")
		for i, a := range answers.wait()[1:11] {
			full := a.state.Now + int64(91+i)*int64(perHour.Step())
			if a.state.Row.FullAt > full || a.state.Row.FullAt < full-int64(s.takes)*2 {
				t.Errorf("take %d left the bucket full at %d, want %d", i+1, a.state.Row.FullAt, full)
			}
		}
		s.wantSent(t, "hot, hot*16")
	})
	sub(t, "if they are equal, or in a statement of their own", func(t *testing.T, s *sender, q *queue) {
		other, later := take("k", 1), take("k", 1)
		other.Policy, later.At = limiter.PerHour(200), 1e18
		ops := append(takes("k k k"), take("k", 2), other, later, of(limiter.OpRefund, "k", 5))
		ask(t.Context(), q, ops...).want(t, "7 took")
		ask(t.Context(), q, takes("k k k")...).want(t, "3 took")
		s.wantSent(t, "k, k*3, k, k, k, k, k*2")
	})
	sub(t, "if they give back", func(t *testing.T, s *sender, q *queue) {
		refund := of(limiter.OpRefund, "k", 1)
		ask(t.Context(), q, take("k", 5)).want(t, "took")
		ops := []limiter.Op{refund, refund, of(limiter.OpRefund, "k", 2), of(limiter.OpReset, "k", 0), refund, take("k", 1), take("k", 1), refund}
		ask(t.Context(), q, ops...).want(t, "4 took, refused, 3 took") // of an unused key there is nothing to refund
		// The first goes alone, at once. Of those that wait, at most three go together. Without GiveBacks, none do.
		ask(t.Context(), open(s, batch.Config{Shared: 1, Single: 1, Merges: merges}), refund, refund, refund).wait()
		s.wantSent(t, "k, k, k*3, k, k*2, k, k, k, k")
	})
	// The fake store does not roll back a failed statement.
	sub(t, "and once more if they failed together", func(t *testing.T, s *sender, q *queue) {
		op, left := take("k", 1), 1
		op.Policy = limiter.PerHour(4)
		s.after = failing(limiter.ErrNotApplied, func(groups []*batch.Group) bool {
			left -= min(len(groups[0].Calls)-1, 1)
			return left >= 0 && len(groups[0].Calls) > 1
		})
		ask(t.Context(), q, op, op, op).want(t, "2 took, refused")
		testenv.Equal(t, s.counters.Retries.Load(), 2)
		left = 2
		ask(t.Context(), q, op, op, op).want(t, "refused, 2 not applied")
		s.wantSent(t, "k, k*2, k*2, k, k*2, k*2")
	})
}

// Only equal calls are units of one row. A key with unequal calls shares no statement with other keys.
func TestUnequalCalls(t *testing.T) {
	for name, change := range map[string]func(op *limiter.Op){
		"of another kind":           func(op *limiter.Op) { op.Kind = limiter.OpCharge },
		"of another policy":         func(op *limiter.Op) { op.Policy = limiter.PerHour(200) },
		"of another cost":           func(op *limiter.Op) { op.Cost = 2 },
		"that book further ahead":   func(op *limiter.Op) { op.MaxWait = time.Second },
		"that bring their own time": func(op *limiter.Op) { op.At = 1e18 },
	} {
		for _, merges := range []func(*limiter.Op) bool{nil, func(*limiter.Op) bool { return true }} {
			sub(t, fmt.Sprintf("%s, with Merges: %v", name, merges != nil), func(t *testing.T, s *sender, _ *queue) {
				q := open(s, batch.Config{Keys: 4, Shared: 1, Single: 1, HotKey: 100, Merges: merges})
				ops := takes("first g g k k k last") // g fills the line of single keys
				for _, i := range []int{2, 4, 5} {
					change(&ops[i])
				}
				ask(t.Context(), q, ops...).want(t, "7 took")
				sent := s.statements() // the fake store checks their units
				st := sent[slices.IndexFunc(sent, func(st statement) bool { return strings.Contains(st.text, "k") })]
				if alone := !strings.Contains(st.text, "+"); alone != (merges != nil) {
					t.Errorf("k was sent in %q, want it alone: %v", st.text, merges != nil)
				}
			})
		}
	}
}

func TestOperationsSideBySide(t *testing.T) {
	for name, config := range map[string]batch.Config{
		"of single keys":       {Shared: 1, Single: 2, HotKey: 100, Merges: func(*limiter.Op) bool { return false }},
		"that could be merged": {Shared: 2, Single: 1, HotKey: 100, Keys: 1},
	} {
		sub(t, name, func(t *testing.T, s *sender, _ *queue) {
			want := "2 took after 10ms, 2 took after 20ms, took after 30ms"
			ask(t.Context(), open(s, config), takes("a b c d e")...).want(t, want)
		})
	}
	sub(t, "that read", func(t *testing.T, _ *sender, q *queue) {
		ask(t.Context(), q, takes("k k")...)
		ask(t.Context(), q, of(limiter.OpLook, "k", 0)).want(t, "refused after 10ms")
	})
}

func TestKeyInALine(t *testing.T) {
	apart(t, "leaves no place when it moves", 1, 2, func(t *testing.T, s *sender, q *queue) {
		delays := map[string]time.Duration{"first": 50 * ms}
		s.before = func(ctx context.Context, groups []*batch.Group) error {
			return pause(ctx, delays[groups[0].Op().Key], nil)
		}
		// One take of "moves" waits behind the first key. With a second one the key is
		// hot and moves to the other line, and this line skips it.
		ask(t.Context(), q, takes("first moves moves second")...)
		<-time.After(2 * s.takes)
		s.wantSent(t, "moves*2")
		ask(t.Context(), q, take("third", 1)).want(t, "took")
		s.wantSent(t, "first, moves*2, second, third")
	})
	apart(t, "is sent alone only once", 4, 100, func(t *testing.T, s *sender, q *queue) {
		s.before = failing(limiter.ErrInvalid, func(g []*batch.Group) bool { return together(g) && has("bad")(g) })
		ctx, cancel := context.WithCancel(t.Context())
		ask(t.Context(), q, takes("first bad")...)
		leave := ask(ctx, q, takes("c d")...)
		<-time.After(2*s.takes + ms)
		cancel() // after they have failed beside the bad one, and before each is sent on its own
		leave.want(t, "2 canceled")
		<-time.After(2 * s.takes)
		ask(t.Context(), q, takes("x e f g")...).want(t, "4 took")
		s.wantSent(t, "first, bad+c+d, bad, x, e+f+g")
	})
}

func TestKinds(t *testing.T) {
	t.Parallel()
	var givesBack, refusable []limiter.OpKind
	for kind := limiter.OpTake; kind <= limiter.OpExtend; kind++ {
		op := &limiter.Op{Kind: kind}
		if batch.GivesBack(op) {
			givesBack = append(givesBack, kind)
		}
		if batch.Refusable(op) {
			refusable = append(refusable, kind)
		}
	}
	testenv.Equal(t, fmt.Sprint(givesBack), "[refund cancel reset release]", "that give back")
	testenv.Equal(t, fmt.Sprint(refusable), "[take take_up_to acquire]", "that can be refused")
	row := limiter.Row{Used: 1}
	testenv.Equal(t, batch.GivenBack(limiter.State{Now: 1, Row: row}), limiter.State{}, "nothing came back")
	testenv.Equal(t, batch.GivenBack(limiter.State{Took: true, Now: 1, Row: row}), limiter.State{Took: true, Row: row}, "it came back")
}

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
		delays := map[string]time.Duration{"first": 100 * ms}
		s.before = func(ctx context.Context, groups []*batch.Group) error {
			return pause(ctx, delays[groups[0].Op().Key], nil)
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
		h.End(nil)
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

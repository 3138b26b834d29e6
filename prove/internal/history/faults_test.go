package history_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/history"
	"github.com/sqlimit/limiter/prove/internal/kinds"
)

// refused makes requests until the next one, a take of 1, would be refused.
func (w *world) refused() (history.Call, int64) {
	c, now := w.room()
	for {
		next, s := c.Op.Apply(w.row, now)
		if !s.Took {
			return c, now
		}
		w.answer(c, next, s)
		w.at += 1000
		now += 1000
		c.Began, c.Ended = w.at-100, w.at+100
	}
}

// charged is what [world.charge] charges: more than there ever is.
const charged = 40

// of is an operation as of [world.room], and what the clock reads.
func (w *world) of(kind limiter.OpKind, cost int64) (history.Call, int64) {
	c, now := w.room()
	c.Op.Kind, c.Op.Cost = kind, cost
	return c, now
}

// charge is a charge that exceeds what there is.
func (w *world) charge() (history.Call, int64) { return w.of(limiter.OpCharge, charged) }

// book carries out an operation and answers nobody.
func (w *world) book(op limiter.Op, now int64) {
	next, _ := op.Apply(w.row, now)
	w.write(next, 1)
}

// tell records a call without an answer of the store.
func (w *world) tell(c history.Call, outcome history.Outcome) {
	c.Outcome, c.State = outcome, limiter.State{}
	w.calls = append(w.calls, c)
}

// fault is what a store may do wrong, in a world in which all else is right.
type fault struct {
	name string
	do   func(w *world)
	want []history.Kind // of the witness, one of them
}

// misbooked are the faults of an operation that spends what a key has.
func misbooked(name string, operation func(w *world) (history.Call, int64), inOneChange ...history.Kind) []fault {
	return []fault{
		{name: name + " that is told and not booked", want: []history.Kind{history.Lost}, do: func(w *world) {
			c, now := operation(w)
			_, s := c.Op.Apply(w.row, now)
			w.answer(c, w.row, s)
			w.look(w.row) // others see that it is not there
		}},
		{name: name + " that is booked twice", want: []history.Kind{history.Double}, do: func(w *world) {
			c, now := operation(w)
			w.carryOut(c, now)
			w.book(c.Op, now)
			w.look(w.row)
		}},
		{name: name + " that is booked twice in one change", want: inOneChange, do: func(w *world) {
			c, now := operation(w)
			next, s := c.Op.Apply(w.row, now)
			s.Row, _ = c.Op.Apply(next, now)
			w.answer(c, s.Row, s)
		}},
		{name: name + " of unknown outcome that is booked twice", want: []history.Kind{history.Double}, do: func(w *world) {
			c, now := operation(w)
			w.book(c.Op, now)
			w.book(c.Op, now)
			w.tell(c, history.Unknown)
		}},
	}
}

var faults = slices.Concat(
	misbooked("a take", (*world).room, history.Answer, history.Over, history.Double, history.Lost),
	misbooked("a charge", (*world).charge, history.Answer, history.Lost),
	others)

var others = []fault{
	{name: "one take too many", want: []history.Kind{history.Over}, do: func(w *world) {
		c, now := w.refused()
		row := w.row
		kinds.Spend(c.Op.Policy, &row, 1)
		row.At = max(row.At, now)
		w.answer(c, row, limiter.State{Row: row, Now: max(now, row.At), Took: true})
	}},
	{name: "a take that is booked and said not to be", want: []history.Kind{history.Double}, do: func(w *world) {
		c, now := w.room()
		w.book(c.Op, now)
		w.tell(c, history.NotApplied)
	}},
	{name: "a charge that stops at the limit", want: []history.Kind{history.Answer}, do: func(w *world) {
		c, now := w.charge()
		_, s := c.Op.Apply(w.row, now)
		c.Op.Cost = 10
		s.Row, _ = c.Op.Apply(w.row, now)
		c.Op.Cost = charged
		w.answer(c, s.Row, s)
	}},
	{name: "a part of a take of more than there is", want: []history.Kind{history.Over}, do: func(w *world) {
		c, now := w.of(limiter.OpTakeUpTo, charged)
		_, s := c.Op.Apply(w.row, now)
		s.Taken++
		kinds.Spend(c.Op.Policy, &s.Row, 1)
		w.answer(c, s.Row, s)
		w.skip = w.counts
	}},
	{name: "a part of a take that says more than it took", want: []history.Kind{history.Over}, do: func(w *world) {
		c, now := w.of(limiter.OpTakeUpTo, charged)
		next, s := c.Op.Apply(w.row, now)
		s.Taken++
		w.answer(c, next, s)
		w.skip = w.counts
	}},
	{name: "a take that passes during a block", want: []history.Kind{history.Over}, do: func(w *world) {
		c, now := w.of(limiter.OpBlock, 5*ms)
		w.carryOut(c, now)
		w.at += ms
		c.Op.Kind, c.Op.Cost, c.Began, c.Ended = limiter.OpTake, 1, w.at-100, w.at+100
		row := w.row
		kinds.Unblock(c.Op.Policy, &row)
		row.At = now + ms
		w.answer(c, row, limiter.State{Row: row, Now: row.At, Took: true})
	}},
	{name: "a block that is too short", want: []history.Kind{history.Answer}, do: func(w *world) {
		c, now := w.of(limiter.OpBlock, 500*ms)
		short := c.Op
		short.Cost = 50 * ms
		next, s := short.Apply(w.row, now)
		w.answer(c, next, s)
	}},
	{name: "a block that is booked shorter than it is told", want: []history.Kind{history.Lost}, do: func(w *world) {
		c, now := w.of(limiter.OpBlock, 500*ms)
		_, s := c.Op.Apply(w.row, now)
		short := c.Op
		short.Cost = 50 * ms
		next, _ := short.Apply(w.row, now)
		w.answer(c, next, s)
		w.look(w.row)
	}},
	{name: "a block that a refund shortens", want: []history.Kind{history.Given, history.Double}, do: func(w *world) {
		c, now := w.of(limiter.OpBlock, 50*ms)
		w.carryOut(c, now)
		c.Op.Kind, c.Op.Cost = limiter.OpRefund, 1
		row := w.row
		kinds.Spend(c.Op.Policy, &row, -1)
		w.answer(c, row, limiter.State{Row: row, Took: true})
	}},
	{name: "a refusal where there is room", want: []history.Kind{history.Answer}, do: func(w *world) {
		c, now := w.room()
		_, s := c.Op.Apply(w.row, now)
		w.skip = w.counts // it counts, and then it is another answer
		w.answer(c, w.row, limiter.State{Row: w.row, Now: s.Now})
	}},
	{name: "a refund that is booked twice", want: []history.Kind{history.Given}, do: func(w *world) {
		c, now := w.room()
		c.Op.Cost = 9
		w.carryOut(c, now)
		c.Op.Kind, c.Op.Cost = limiter.OpRefund, 4 // as no other
		w.carryOut(c, now)
		w.book(c.Op, now)
		w.skip = w.counts
	}},
	{name: "a look at a state that is past", want: []history.Kind{history.Answer}, do: func(w *world) {
		old := w.row
		c, now := w.room()
		w.carryOut(c, now)
		w.skip = w.look(old) == w.look(w.row)
	}},
	{name: "a state that somebody knew of, and then the one before it", want: []history.Kind{history.Answer}, do: func(w *world) {
		old := w.row
		c, now := w.room()
		c.Ended += ms // it is not told before the looks have ended
		w.carryOut(c, now)
		w.skip = w.look(w.row) == w.look(old)
	}},
	{name: "a take that is told before the one before it began", want: []history.Kind{history.Order}, do: func(w *world) {
		c, now := w.room()
		w.carryOut(c, now)
		d := c
		d.Began, d.Ended = c.Began-ms, c.Began-1
		w.carryOut(d, now)
	}},
	{name: "an answer of two readings", want: []history.Kind{history.Answer, history.Double, history.Over}, do: func(w *world) {
		c, now := w.room()
		next, s := c.Op.Apply(w.row, now)
		s.Row.At--
		w.answer(c, next, s)
	}},
	{name: "a row that is removed while it counts", want: []history.Kind{history.Swept}, do: func(w *world) {
		w.refused()
		w.write(limiter.Row{}, 0)
	}},
	{name: "a row that changes behind the log's back", want: []history.Kind{history.Chain}, do: func(w *world) {
		w.refused()
		w.row.At++
	}},
}

// Also if nobody knows the outcome of some calls. Always the same worlds: where refunds are of the same amounts, the
// witness does not find its way in one of some 7,000.
func TestNoFaultIsSeenInARightHistory(t *testing.T) {
	eachKind(t, func(t *testing.T, _ *rand.Rand, k kind) {
		for seed := range uint64(20) {
			w := newWorld(rand.New(rand.NewPCG(seed, 0)), k)
			for range 10 {
				w.run(5)
				c, now := w.call(w.op())
				c.Began -= w.Int64N(30 * ms) // a fault held it up
				if w.IntN(2) == 0 {
					w.book(c.Op, now)
				}
				w.tell(c, history.Unknown)
				c, _ = w.call(w.op())
				w.tell(c, history.NotApplied)
			}
			testenv.Equal(t, history.Check(w.history()).Err(), nil, "seed ", seed)
		}
	})
}

// Of resets that overlap one changes the row, and no answer tells which. A third begins before they end,
// and is carried out afterwards.
func TestResetsThatOverlap(t *testing.T) {
	policy := limiter.PerSecond(10)
	w := newWorld(rand.New(rand.NewPCG(1, 0)), kind{Spec: kinds.Spec{Policies: []limiter.Policy{policy}}})
	for range 40 {
		w.at += 100 * ms
		for _, c := range []struct {
			kind              limiter.OpKind
			began, now, ended int64
		}{
			{limiter.OpTake, 0, 1, 2},
			{limiter.OpReset, 0, 3, 12},
			{limiter.OpReset, 0, 4, 10},
			{limiter.OpTake, 5, 6, 50},
			{limiter.OpLook, 13, 14, 15}, // after the end of both resets
			{limiter.OpReset, 5, 16, 20},
		} {
			op := limiter.Op{Kind: c.kind, Name: "made", Key: key, Policy: policy, Cost: 1}
			w.carryOut(history.Call{Op: op, Began: w.at + c.began*ms, Ended: w.at + c.ended*ms}, ahead+w.at+c.now*ms)
		}
	}
	testenv.Must(t, history.Check(w.history()).Err())
}

func TestEachFaultIsSeen(t *testing.T) {
	made := map[string]int{}
	eachKind(t, func(t *testing.T, r *rand.Rand, k kind) {
		for _, f := range faults {
			for range 3 {
				w := newWorld(r, k)
				w.run(15)
				if f.do(w); w.skip {
					continue
				}
				made[f.name]++
				w.at += 10 * ms
				w.run(5)
				h := w.history()
				found := history.Check(h)
				if !slices.ContainsFunc(found.Faults, func(g history.Fault) bool { return slices.Contains(f.want, g.Kind) }) {
					t.Fatalf("%s: the witness finds %v, want one of %q", f.name, found.Err(), f.want)
				}
			}
		}
	})
	testenv.Equal(t, len(made), len(faults), "only these were made: ", made)
}

package history_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/history"
	"github.com/sqlimit/limiter/prove/internal/kinds"
)

const (
	start = 1_800_000_000_000_000_000
	ahead = 1_799_999_000_000_000_000 // by which the store's clock is
	ms    = int64(time.Millisecond)
)

type kind struct {
	kinds.Spec
	counts, merges bool // refusals, and equal takes
}

func eachKind(t *testing.T, test func(t *testing.T, r *rand.Rand, k kind)) {
	t.Helper()
	t.Parallel()
	for _, s := range kinds.Made {
		counts, seed := (&limiter.Op{Policy: s.Policies[0]}).CountsRefusals(), rand.Uint64()
		t.Run(fmt.Sprintf("%s, seed %d", s.Name, seed), func(t *testing.T) {
			test(t, rand.New(rand.NewPCG(seed, 0)), kind{s, counts, len(s.Policies) == 1 && !counts})
		})
	}
}

// world is a store that carries out one operation after another, during calls that overlap.
type world struct {
	*rand.Rand
	kind
	row     limiter.Row
	at      int64 // by the callers' clock
	calls   []history.Call
	log     []history.Transition
	granted []history.Call // what can be given back
	skip    bool           // a fault does not show in this world
}

const key = "key"

func newWorld(r *rand.Rand, k kind) *world { return &world{Rand: r, kind: k, at: start - ahead} }

func (w *world) id() history.Key {
	return history.Key{Kind: limiter.KindOf(w.Policies[0]), Name: "made", Key: key}
}

// taking is a take of all or a part of its cost, a charge or a block.
func (w *world) taking(policy limiter.Policy) limiter.Op {
	op := limiter.Op{Kind: limiter.OpTake, Name: "made", Key: key, Policy: policy, Cost: 1 + w.Int64N(3)}
	switch w.IntN(40) {
	case 0, 1, 2:
		op.Kind = limiter.OpCharge
	case 3:
		op.Kind, op.Cost = limiter.OpCharge, 1+w.Int64N(15)
	case 4, 5, 6:
		if !w.counts {
			op.Kind, op.Cost = limiter.OpTakeUpTo, 1+w.Int64N(12)
		}
	case 7:
		op.Kind, op.Cost = limiter.OpBlock, 1+w.Int64N(8*ms)
	}
	return op
}

// op is anything that can be done to a key, most often a take.
func (w *world) op() limiter.Op {
	op := w.taking(w.Policies[w.IntN(len(w.Policies))])
	if w.IntN(12) == 0 {
		op.Kind, op.Cost = limiter.OpLook, 0
		return op
	}
	if !w.GivesBack {
		return op
	}
	switch w.IntN(8) {
	case 0:
		if op.Kind == limiter.OpTake {
			op.MaxWait = time.Duration(w.Int64N(15 * ms))
		}
	case 1, 2:
		if len(w.granted) == 0 {
			break
		}
		c := w.granted[0]
		w.granted = w.granted[1:]
		op.Kind, op.Cost, op.Policy = limiter.OpRefund, c.Op.Cost, c.Op.Policy
		if c.Op.MaxWait > 0 {
			op.Kind, op.Booked = limiter.OpCancel, c.State
		}
	case 3:
		if w.IntN(6) == 0 {
			op.Kind, op.Cost = limiter.OpReset, 0
		}
	}
	return op
}

// call returns a call of op that is under way now, and what the store's clock reads.
func (w *world) call(op limiter.Op) (history.Call, int64) {
	w.at += 1 + w.Int64N(2*ms)
	c := history.Call{Op: op, Began: w.at - w.Int64N(5*ms), Ended: w.at + w.Int64N(5*ms)}
	return c, ahead + w.at - w.Int64N(w.at-c.Began+1)
}

// carryOut carries out a call when the store's clock reads now.
func (w *world) carryOut(c history.Call, now int64) {
	next, s := c.Op.Apply(w.row, now)
	w.answer(c, next, s)
}

// answer records a call that leaves a row and is told of a state.
func (w *world) answer(c history.Call, next limiter.Row, s limiter.State) {
	units := int64(1)
	if w.merges { // a statement for units takes up to a cost
		units = max(1, s.Taken)
	}
	w.write(next, units)
	c.State = s
	switch c.Op.Kind {
	case limiter.OpRefund, limiter.OpCancel, limiter.OpReset:
		if c.State = (limiter.State{}); s.Took {
			c.State = limiter.State{Took: true, Row: s.Row}
		}
	default:
		c.State.Tick = 1000
	}
	if (c.Op.Kind == limiter.OpTake || c.Op.Kind == limiter.OpTakeUpTo) && s.Took {
		w.granted = append(w.granted, c)
	}
	w.calls = append(w.calls, c)
}

func (w *world) write(next limiter.Row, units int64) {
	if next != w.row {
		w.log = append(w.log, history.Transition{Key: w.id(), Old: w.row, New: next, Units: units})
	}
	w.row = next
}

// merge carries out some equal takes in one, of which some may not be granted.
func (w *world) merge() {
	op := limiter.Op{Kind: limiter.OpTake, Name: "made", Key: key, Policy: w.Policies[0], Cost: 1}
	if w.IntN(2) == 0 && !w.counts {
		op.Kind, op.Cost = limiter.OpTakeUpTo, 1+w.Int64N(3)
	}
	row, units := w.row, int64(0)
	first, now := w.call(op)
	for range 2 + w.IntN(4) {
		c := first
		c.Began -= w.Int64N(2 * ms)
		c.Ended += w.Int64N(2 * ms)
		next, s := op.Apply(row, now)
		if !s.Took {
			break
		}
		s.Tick = 1000
		c.State, row = s, next
		w.calls = append(w.calls, c)
		units += s.Taken
	}
	if !w.GivesBack && w.IntN(2) == 0 {
		units = 0 // nobody wrote it down
	}
	w.write(row, units)
}

// settle carries out some takes, charges and blocks of one policy in one transition, at one reading of
// the clock. It is after that of the row: the row has not changed since both were read.
func (w *world) settle() {
	row, began, policy := w.row, w.at, w.Policies[w.IntN(len(w.Policies))]
	_, now := w.call(limiter.Op{})
	now = max(now, row.At+1)
	for range 2 + w.IntN(4) {
		c, _ := w.call(w.taking(policy))
		if w.GivesBack && c.Op.Kind == limiter.OpTake && w.IntN(4) == 0 {
			c.Op.MaxWait = time.Duration(w.Int64N(15 * ms))
		}
		c.Began, c.Ended = min(began-w.Int64N(2*ms), now-ahead), max(w.at+w.Int64N(2*ms), now-ahead)
		row, c.State = c.Op.Apply(row, now)
		c.State.Tick = 1000
		if c.State.Took && c.Op.Kind == limiter.OpTake {
			w.granted = append(w.granted, c)
		}
		w.calls = append(w.calls, c)
	}
	w.write(row, 1)
}

// run carries out n operations, of which some go together.
func (w *world) run(n int) {
	for range n {
		switch {
		case w.merges && w.IntN(10) == 0:
			w.merge()
		case w.IntN(10) == 0:
			w.settle()
		default:
			w.carryOut(w.call(w.op()))
		}
	}
}

// room is a take of 1 at the beginning of a window of any policy, where there is room, and what the clock reads.
func (w *world) room() (history.Call, int64) {
	const windows = 180 * ms
	now := ahead + w.at + 200*ms
	now += windows - now%windows
	w.at = now - ahead
	op := limiter.Op{Kind: limiter.OpTake, Name: "made", Key: key, Policy: w.Policies[0], Cost: 1}
	return history.Call{Op: op, Began: w.at - 100, Ended: w.at + 100}, now
}

// look is a look a moment later, at a row that may be another than the one that is there.
func (w *world) look(row limiter.Row) limiter.State {
	w.at += 1000
	op := limiter.Op{Kind: limiter.OpLook, Name: "made", Key: key, Policy: w.Policies[0]}
	_, s := op.Apply(row, ahead+w.at)
	w.answer(history.Call{Op: op, Began: w.at - 100, Ended: w.at + 100}, w.row, s)
	return s
}

func (w *world) history() *history.History {
	w.Shuffle(len(w.calls), func(i, j int) { w.calls[i], w.calls[j] = w.calls[j], w.calls[i] })
	return &history.History{Calls: w.calls, Transitions: w.log, Left: map[history.Key]limiter.Row{w.id(): w.row}}
}

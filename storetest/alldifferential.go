package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
)

var allDifferentialCases = []testCase{
	{
		"random histories of several limits",
		"DoAll returns the states that ApplyAll returns, and leaves the same rows, whatever else happens to the rows",
		func(f *fixture) {
			h := &allHistory{duel: duel{fixture: f, rnd: f.random(), reference: reference{rows: map[string]limiter.Row{}}, high: f.now}}
			for range 150 {
				h.operate()
			}
		},
	},
}

// allHistory is a history of operations on a few rows, which takes share.
type allHistory struct {
	duel
	booked []limiter.Op // the takes that may be canceled
}

// op returns a take of a row that the number i stands for.
func (h *allHistory) op(i int, shared bool) limiter.Op {
	kind, i := i%len(sharedPolicies), i/len(sharedPolicies)
	policies := slices.Clone(sharedPolicies[kind])
	if shared {
		policies = slices.DeleteFunc(policies, countsRefusals)
	}
	p := policies[0]
	if h.rnd.IntN(3) == 0 {
		p = policies[h.rnd.IntN(len(policies))]
	}
	cost := int64(1)
	if h.rnd.IntN(2) == 0 {
		cost = 1 + h.rnd.Int64N(limitOf(p)/3)
	}
	return limiter.Op{
		Kind: limiter.OpTake, Name: fmt.Sprint(h.prefix, "l", i%2), Key: fmt.Sprintf("%d-%d", h.generation, i/2),
		Policy: p, Cost: cost, At: h.now.UnixNano(), Timeout: timeLimit,
	}
}

// rowOf names the row of op.
func rowOf(op *limiter.Op) string {
	return fmt.Sprintf("%T %s %s", op.Policy, op.Name, op.Key)
}

// operate moves the clock, and carries out takes of several rows or one other operation.
func (h *allHistory) operate() {
	h.Helper()
	before := h.generation
	h.tick()
	if h.generation != before {
		h.booked = nil
	}
	rows := 6 * len(sharedPolicies)
	var ops []limiter.Op
	if h.rnd.IntN(2) == 0 {
		for _, i := range someOf(h.rnd, rows) {
			ops = append(ops, h.op(i, true))
		}
		slices.SortFunc(ops, func(a, b limiter.Op) int { return a.Compare(&b) })
		h.all(ops)
	} else {
		ops = append(ops, h.single(h.op(h.rnd.IntN(rows), false)))
		h.one(ops[0])
	}
	for _, op := range ops { // what they left
		op.Kind, op.Cost, op.MaxWait, op.Booked = limiter.OpLook, 1, 0, limiter.State{}
		h.one(op)
	}
}

// single makes another operation of a take.
func (h *allHistory) single(op limiter.Op) limiter.Op {
	counts := op.CountsRefusals()
	switch kind := h.rnd.IntN(20); {
	case kind < 5:
	case kind < 8 && !counts:
		op.MaxWait = time.Duration(h.rnd.Int64N(int64(8 * s)))
		h.booked = append(h.booked, op)
	case kind < 10 && len(h.booked) > 0:
		op = h.booked[h.rnd.IntN(len(h.booked))]
		op.Kind, op.At = limiter.OpCancel, h.now.UnixNano()
	case kind < 12 && !counts:
		op.Kind, op.Cost = limiter.OpTakeUpTo, 1+h.rnd.Int64N(20)
	case kind < 14:
		op.Kind, op.Cost = limiter.OpCharge, 1+h.rnd.Int64N(12)
	case kind < 15:
		op.Kind, op.Cost = limiter.OpBlock, 1+h.rnd.Int64N(int64(10*s))
	case kind < 17:
		op.Kind, op.Cost = limiter.OpRefund, 1+h.rnd.Int64N(12)
	case kind < 18:
		op.Kind, op.Cost = limiter.OpReset, 0
	}
	return op
}

func countsRefusals(p limiter.Policy) bool { return (&limiter.Op{Policy: p}).CountsRefusals() }

// one carries out a single operation.
func (h *allHistory) one(op limiter.Op) {
	h.Helper()
	h.trace = append(h.trace, fmt.Sprintf("at %v: %+v", h.now.Sub(epoch), op))
	row := h.reference.rows[rowOf(&op)]
	next, want := op.Apply(row, op.At)
	got, err := h.store.Do(context.Background(), op)
	if err != nil {
		h.fail("%v", err)
	}
	h.reference.rows[rowOf(&op)] = next
	if i := len(h.booked) - 1; i >= 0 && op == h.booked[i] { // it was booked now
		if h.booked[i].Booked = want; !want.Took {
			h.booked = h.booked[:i]
		}
	}
	switch op.Kind {
	case limiter.OpReset: // a refusal of several takes may have added the row of an unused key
		got, want = limiter.State{}, limiter.State{}
	case limiter.OpRefund, limiter.OpCancel, limiter.OpBlock:
		got, want = limiter.State{Took: got.Took}, limiter.State{Took: want.Took}
	}
	h.same(got, want)
}

// all carries out takes of several rows, all or none.
func (h *allHistory) all(ops []limiter.Op) {
	h.Helper()
	rows := make([]limiter.Row, len(ops))
	for i := range ops {
		rows[i] = h.reference.rows[rowOf(&ops[i])]
	}
	h.trace = append(h.trace, fmt.Sprintf("at %v: all of %+v", h.now.Sub(epoch), ops))
	next, want := limiter.ApplyAll(ops, rows, ops[0].At)
	got, err := h.store.(limiter.AllStore).DoAll(context.Background(), slices.Clone(ops))
	if err != nil || len(got) != len(want) {
		h.fail("%d states, %v, want %d", len(got), err, len(want))
	}
	for i := range ops {
		h.reference.rows[rowOf(&ops[i])] = next[i]
		h.same(got[i], want[i])
	}
}

// same checks a state, in which the Tick is the store's.
func (h *allHistory) same(got, want limiter.State) {
	h.Helper()
	if got.Tick > 1 {
		h.fail("Tick %d of an operation with its own time", got.Tick)
	}
	if got.Tick = want.Tick; got != want {
		h.fail("state\n %+v, want\n %+v", got, want)
	}
}

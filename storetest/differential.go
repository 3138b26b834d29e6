package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sqlimit/limiter"
)

const differentialRequirement = "a store returns for every operation what Op.Apply returns, and DoAll what ApplyAll returns, and leaves the same rows"

var differentialCases = func() (cases []testCase) {
	for _, d := range differentials {
		cases = append(cases, testCase{d.name, differentialRequirement, func(f *fixture) {
			f.history(d.policies).run(d.n, 0)
		}})
	}
	return cases
}()

var allDifferentialCases = []testCase{{"random histories of several limits", differentialRequirement, func(f *fixture) {
	f.history(sharedPolicies...).run(150, 2)
}}}

// history is a random history of operations on a few rows. It compares a store with what
// [limiter.Op.Apply] returns.
type history struct {
	*fixture
	rnd        *rand.Rand
	policies   [][]limiter.Policy // by kind; those of one kind alternate
	rows       map[string]limiter.Row
	taken      []limiter.Op // recent takes, with their states in Booked
	generation int          // of keys
	high       time.Time    // the latest that the clock has said in this generation
	trace      []string
}

func (f *fixture) history(policies ...[]limiter.Policy) *history {
	return &history{fixture: f, rnd: f.random(), policies: policies, rows: map[string]limiter.Row{}, high: f.now}
}

// run carries out n operations. If all is above 0, one in all of them takes from several rows.
func (h *history) run(n, all int) {
	h.Helper()
	rows := 6 * len(h.policies)
	for range n {
		h.tick()
		var ops []limiter.Op
		if all > 0 && h.rnd.IntN(all) == 0 {
			for _, i := range someOf(h.rnd, rows) {
				ops = append(ops, h.take(i, true))
			}
			slices.SortFunc(ops, func(a, b limiter.Op) int { return a.Compare(&b) })
			h.all(ops)
		} else {
			ops = append(ops, h.operation(h.take(h.rnd.IntN(rows), false)))
			h.one(ops[0])
		}
		for _, op := range ops { // compare the rows that they left
			op.Kind, op.Cost, op.MaxWait, op.Booked = limiter.OpLook, 1, 0, limiter.State{}
			h.one(op)
		}
	}
}

// take returns a take of the row that the number i stands for.
func (h *history) take(i int, shared bool) limiter.Op {
	kind, i := i%len(h.policies), i/len(h.policies)
	policies := h.policies[kind]
	if shared {
		policies = slices.DeleteFunc(slices.Clone(policies), countsRefusals)
	}
	p := policies[0]
	if h.rnd.IntN(3) == 0 {
		p = policies[h.rnd.IntN(len(policies))]
	}
	cost := int64(1)
	if h.rnd.IntN(2) == 0 {
		cost = 1 + h.rnd.Int64N(max(1, limitOf(p)/3))
	}
	return limiter.Op{
		Kind: limiter.OpTake, Name: fmt.Sprint(h.prefix, "l", i%2), Key: fmt.Sprintf("%d-%d", h.generation, i/2),
		Policy: p, Cost: cost, At: h.now.UnixNano(), Timeout: timeLimit,
	}
}

// operation makes another operation of a take, or leaves it as it is.
func (h *history) operation(op limiter.Op) limiter.Op {
	if limiter.KindOf(op.Policy) == limiter.KindInFlight {
		return h.leaseOperation(op)
	}
	counts := op.CountsRefusals()
	reach := time.Duration(h.rnd.Int64N(int64(8 * s)))
	switch kind := h.rnd.IntN(20); {
	case kind < 6:
		op.Cost = min(limitOf(op.Policy), op.Cost*(1+h.rnd.Int64N(3)))
	case kind < 10 && !counts:
		op.MaxWait = reach
	case kind < 12 && len(h.taken) > 0:
		op = h.taken[h.rnd.IntN(len(h.taken))]
		op.Kind, op.At = limiter.OpCancel, h.now.UnixNano()
	case kind < 13 && len(h.taken) > 0: // of the window that was charged
		op = h.taken[h.rnd.IntN(len(h.taken))]
		op.Kind, op.At, op.MaxWait = limiter.OpRefund, h.now.UnixNano(), 0
		op.Booked = limiter.State{Row: limiter.Row{Start: op.Booked.Row.Start, Period: op.Booked.Row.Period}}
	case kind < 14 && !counts:
		op.Kind, op.Cost = limiter.OpTakeUpTo, 1+h.rnd.Int64N(20)
	case kind < 15:
		op.Kind, op.Cost = limiter.OpCharge, 1+h.rnd.Int64N(12)
	case kind < 16:
		op.Kind, op.Cost = limiter.OpBlock, 1+h.rnd.Int64N(int64(10*s))
	case kind < 17:
		op.Kind, op.Cost = limiter.OpRefund, 1+h.rnd.Int64N(12)
	case kind < 18:
		op.Kind, op.Cost = limiter.OpReset, 0
	case !counts:
		op.Kind, op.Cost, op.MaxWait = limiter.OpLook, h.rnd.Int64N(limitOf(op.Policy)+1), reach
	}
	return op
}

func countsRefusals(p limiter.Policy) bool { return (&limiter.Op{Policy: p}).CountsRefusals() }

// tick moves the clock: mostly forward, sometimes back, by up to hours.
func (h *history) tick() {
	spans := []time.Duration{0, ns, 10 * ms, s, s, 10 * s, time.Minute, 3 * time.Hour}
	span := spans[h.rnd.IntN(len(spans))]
	if span > 0 {
		span = time.Duration(h.rnd.Int64N(int64(span))) + 1
	}
	if h.rnd.IntN(8) == 0 {
		span = -span
	}
	if h.now = h.now.Add(span); h.now.Before(epoch) {
		h.now = epoch
	}
	if h.now.After(h.high) {
		h.high = h.now
	}
	// A store may forget what has expired. Another policy, or a clock that was set back, would then find
	// a row in one place and none in the other.
	for _, row := range h.rows {
		if row != (limiter.Row{}) && row.Expired(h.high.UnixNano()) {
			h.generation++
			clear(h.rows)
			h.taken, h.high = nil, h.now
			return
		}
	}
}

// rowOf names the row of op.
func rowOf(op *limiter.Op) string {
	return fmt.Sprintf("%d %s %s", limiter.KindOf(op.Policy), op.Name, op.Key)
}

// one carries out a single operation.
func (h *history) one(op limiter.Op) {
	h.Helper()
	h.trace = append(h.trace, fmt.Sprintf("at %v: %+v", h.now.Sub(epoch), op))
	next, want := op.Apply(h.rows[rowOf(&op)], op.At)
	got, err := h.store.Do(context.Background(), op)
	if err != nil {
		h.fail("%v", err)
	}
	h.rows[rowOf(&op)] = next
	switch op.Kind {
	case limiter.OpTake:
		if want.Took && !op.CountsRefusals() {
			op.Booked = want
			h.taken = append(h.taken[max(0, len(h.taken)-5):], op)
		}
	case limiter.OpRefund, limiter.OpCancel, limiter.OpBlock, limiter.OpReset, limiter.OpRelease:
		got, want = limiter.State{Took: got.Took}, limiter.State{Took: want.Took}
		if op.Kind == limiter.OpReset && len(h.policies) > 1 {
			got.Took = want.Took // a refusal of several takes may have added the row of an unused key
		}
	}
	h.same(got, want)
}

// all carries out takes of several rows, all or none.
func (h *history) all(ops []limiter.Op) {
	h.Helper()
	rows := make([]limiter.Row, len(ops))
	for i := range ops {
		rows[i] = h.rows[rowOf(&ops[i])]
	}
	h.trace = append(h.trace, fmt.Sprintf("at %v: all of %+v", h.now.Sub(epoch), ops))
	next, want := limiter.ApplyAll(ops, rows, ops[0].At)
	got, err := h.store.(limiter.AllStore).DoAll(context.Background(), slices.Clone(ops))
	if err != nil || len(got) != len(want) {
		h.fail("%d states, %v, want %d", len(got), err, len(want))
	}
	for i := range ops {
		h.rows[rowOf(&ops[i])] = next[i]
		h.same(got[i], want[i])
	}
}

// same checks a state, in which the Tick is the store's.
func (h *history) same(got, want limiter.State) {
	h.Helper()
	if got.Tick > 1 {
		h.fail("Tick %d of an operation with its own time", got.Tick)
	}
	if got.Tick = want.Tick; got != want {
		h.fail("state\n %+v, want\n %+v", got, want)
	}
}

func (h *history) fail(format string, args ...any) {
	h.Helper()
	last := h.trace[max(0, len(h.trace)-25):]
	h.Fatalf(format+"\n%s", append(args, strings.Join(last, "\n"))...)
}

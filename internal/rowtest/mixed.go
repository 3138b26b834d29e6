package rowtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

// RunMixed tests different operations on one key at the same time, which a store may carry out
// together. Their states and the row must be what [limiter.Op.Apply] returns for one after another
// in some order. The store is empty. count is the number of rounds.
func RunMixed(t *testing.T, store limiter.Store, rows Rows, count int) {
	const together = 5
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range count {
		n := r.IntN(len(mixedPolicies))
		op := limiter.Op{
			Kind: takeOf(mixedPolicies[n]), Name: fmt.Sprint("l", n), Key: fmt.Sprint(round), Policy: mixedPolicies[n],
			Cost: 1, At: anyTime(r, mixedPolicies[n]), Timeout: time.Minute,
		}
		leaseOp(r, &op)
		booked, err := store.Do(t.Context(), op)
		testenv.Must(t, err)
		before := rows.Read(t, op)
		var ops [together]limiter.Op
		for i := range ops {
			ops[i] = op
			ops[i].Kind = limiter.OpKind(pick(r, int64(op.Kind), int64(op.Kind), int64(anyKind(r, op.Policy))))
			ops[i].Cost = pick(r, 1, 1, 2, 3)
			leaseOp(r, &ops[i])
			switch ops[i].Kind {
			case limiter.OpTake:
				if !op.CountsRefusals() {
					ops[i].MaxWait = time.Duration(pick(r, 0, 0, second, 3600*second))
				}
			case limiter.OpBlock:
				ops[i].Cost = pick(r, second, 3600*second)
			case limiter.OpRefund:
				if r.IntN(2) == 0 { // of the window that was charged, or of one before it
					ops[i].Booked.Row.Start = booked.Row.Start - pick(r, 0, booked.Row.Period)
					ops[i].Booked.Row.Period = booked.Row.Period
				}
			case limiter.OpCancel:
				ops[i].Cost, ops[i].Booked = op.Cost, booked
			default:
			}
		}
		var got [together]limiter.State
		var all sync.WaitGroup
		for i, op := range &ops {
			all.Go(func() {
				s, err := store.Do(t.Context(), op)
				if err != nil {
					t.Errorf("seed %d: %+v on %+v: %v", seed, op, before, err)
				}
				got[i] = reported(op, s)
			})
		}
		all.Wait()
		if left := rows.Read(t, op); !explained(before, left, ops[:], got[:]) {
			t.Fatalf("seed %d: no order explains the states of %+v on\n     %+v\n got %+v\nleft %+v", seed, ops, before, got, left)
		}
	}
}

// reported is what a store must report of an operation: of refunds, cancels and resets the row if
// they took.
func reported(op limiter.Op, s limiter.State) limiter.State {
	switch {
	case op.Kind == limiter.OpTake || op.Kind == limiter.OpLook || op.Kind == limiter.OpTakeUpTo || op.Kind == limiter.OpCharge,
		op.Kind == limiter.OpAcquire, op.Kind == limiter.OpExtend:
		s.Tick = 0
		return s
	case s.Took:
		return limiter.State{Took: true, Row: s.Row}
	}
	return limiter.State{}
}

// explained reports whether the operations, in some order, return got and turn one row into the
// other.
func explained(from, to limiter.Row, ops []limiter.Op, got []limiter.State) bool {
	if len(ops) == 0 {
		return from == to
	}
	for i, op := range ops {
		next, s := op.Apply(from, op.At)
		if reported(op, s) != got[i] {
			continue
		}
		if explained(next, to, slices.Concat(ops[:i], ops[i+1:]), slices.Concat(got[:i], got[i+1:])) {
			return true
		}
	}
	return false
}

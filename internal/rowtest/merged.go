package rowtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/testenv"
)

// RunMerged tests takes of the same keys at the same time, which a store may carry out together.
// Whatever row they find, their states and the row must be what [limiter.Op.Apply] returns for one
// after another. The takes of a key are equal, so that their order makes no difference. Two limiters
// have each key. The store is empty. count is the number of rounds.
func RunMerged(t *testing.T, store limiter.Store, rows Rows, count int) {
	const keys, takes = 6, 5
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range count {
		var ops []limiter.Op
		var before []limiter.Row
		for k := range keys {
			n := r.IntN(len(policies))
			op := limiter.Op{
				Kind: limiter.OpTake, Name: fmt.Sprint("l", n, ".", k%2), Key: fmt.Sprint(round, "-", k/2), Policy: policies[n],
				Cost: pick(r, 1, 1, 2, 3), At: anyTime(r, policies[n]), Timeout: time.Minute,
			}
			switch r.IntN(4) {
			case 0:
				op.Kind = limiter.OpCharge
			case 1, 2:
				if !countsRefusals(op.Policy) {
					op.Kind, op.Cost = limiter.OpTakeUpTo, pick(r, 1, 2, 3, 6, math.MaxInt64)
				}
			}
			row := anyRow(r, op.Policy, op.At)
			for row.List != "" && !summed(row) && rowlist.Numbers(row.List)[17] >= 1<<61-3*takes {
				row = anyRow(r, op.Policy, op.At) // units of one statement do not begin anew in between
			}
			if row.Period != 0 {
				rows.Insert(t, op, row)
			}
			ops, before = append(ops, op), append(before, row)
		}
		got := make([][takes]limiter.State, keys)
		var all sync.WaitGroup
		for i := range takes {
			for k, op := range ops {
				all.Go(func() {
					s, err := store.Do(t.Context(), op)
					if err != nil {
						t.Errorf("seed %d: %+v on %+v: %v", seed, op, before[k], err)
					}
					s.Tick = 0
					got[k][i] = s
				})
			}
		}
		all.Wait()
		for k, op := range ops {
			var want [takes]limiter.State
			row := before[k]
			for i := range want {
				row, want[i] = op.Apply(row, op.At)
				want[i].Tick = 0
			}
			slices.SortFunc(got[k][:], byText)
			slices.SortFunc(want[:], byText)
			if got[k] != want {
				t.Fatalf("seed %d: %d times %+v on\n     %+v\n got %+v\nwant %+v", seed, takes, op, before[k], got[k], want)
			}
			if left := rows.Read(t, op); left != row {
				t.Fatalf("seed %d: %d times %+v on\n     %+v\nleft %+v\nwant %+v", seed, takes, op, before[k], left, row)
			}
		}
	}
}

// byText orders states by their text, because any fixed order will do.
func byText(a, b limiter.State) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }

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

// RunAll tests that the store takes from several rows, or from none, as [limiter.ApplyAll] says, and
// leaves the same rows, whatever rows it finds. The store is empty. count is the number of decisions.
func RunAll(t *testing.T, store limiter.AllStore, rows Rows, count int) {
	shared := slices.DeleteFunc(slices.Clone(policies), countsRefusals)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	took := 0
	for n := range count {
		at := anyTime(r, shared[r.IntN(len(shared))])
		plain := r.IntN(2) == 0 // few rows that a statement does not decide
		ops := make([]limiter.Op, 1+r.IntN(1+r.IntN(limiter.MaxClaims)))
		for i := range ops {
			ops[i] = limiter.Op{
				Kind: limiter.OpTake, Name: fmt.Sprint("l", r.IntN(3)), Key: fmt.Sprint(n, "-", i),
				Policy: shared[r.IntN(len(shared))], Cost: pick(r, 0, 1, 1, 1, 2, 3), At: at,
			}
		}
		slices.SortFunc(ops, func(a, b limiter.Op) int { return a.Compare(&b) })
		before := make([]limiter.Row, len(ops))
		for i, op := range ops {
			if before[i] = anyRow(r, op.Policy, at); plain && (before[i].At > at || r.IntN(3) > 0) {
				before[i] = limiter.Row{}
				if r.IntN(3) > 0 {
					before[i], _ = limiter.Op{Kind: limiter.OpTake, Policy: op.Policy, Cost: pick(r, 0, 1, 1, 3)}.Apply(limiter.Row{}, at-pick(r, 0, 1, second))
				}
			}
			if before[i].Period != 0 {
				rows.Insert(t, op, before[i])
			}
		}
		wantRows, want := limiter.ApplyAll(ops, before, at)
		got, err := store.DoAll(t.Context(), ops)
		if err != nil {
			t.Fatalf("seed %d: %+v on %+v: %v", seed, ops, before, err)
		}
		for i := range got {
			got[i].Tick, want[i].Tick = 0, 0
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %+v on\n     %+v\n got %+v\nwant %+v", seed, ops, before, got, want)
		}
		if !slices.ContainsFunc(want, func(s limiter.State) bool { return !s.Took }) {
			took++
		}
		for i, op := range ops {
			if left := rows.Read(t, op); left != wantRows[i] {
				t.Fatalf("seed %d: take %d of %+v on\n     %+v\nleft %+v\nwant %+v", seed, i, ops, before, left, wantRows[i])
			}
		}
	}
	if took < count/10 || took > count*9/10 {
		t.Errorf("%d of %d decisions took, want a mixture", took, count)
	}
}

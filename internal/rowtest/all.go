package rowtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sqlimit/limiter"
)

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

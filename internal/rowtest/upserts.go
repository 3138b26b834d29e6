package rowtest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// RunUpserts tests an UPSERT that takes units of an operation. It must not grant what
// [limiter.Op.Apply] refuses, and must grant what Apply grants on a row of the same policy that is
// not ahead of the clock. It leaves the row that Apply returns if it grants, otherwise the one that it
// found. The tables are empty. count is the number of rows.
func RunUpserts(t *testing.T, rows Rows, upsert func(op limiter.Op, units int64) (granted bool), count int) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	grants := 0
	for n := range count {
		op := limiter.Op{
			Kind: limiter.OpTake, Name: "l", Key: fmt.Sprint(n), Policy: policies[r.IntN(len(policies))],
			Cost: pick(r, 1, 1, 2, 3), At: start + r.Int64N(second)*r.Int64N(2),
		}
		units := pick(r, 1, 1, 2, 3)
		if w, ok := op.Policy.(limiter.FixedWindow); units == 1 && !(ok && w.CountRejected) {
			op.MaxWait = time.Duration(pick(r, 0, 0, second, 3600*second))
		}
		before := anyRow(r, op.Policy, op.At)
		if op.Cost*units > 3 {
			continue // nobody asks for more than the smallest policy grants
		}
		if before.Period != 0 {
			rows.Insert(t, op, before)
		}
		want, took := before, true
		for range units {
			var state limiter.State
			want, state = op.Apply(want, op.At)
			took = took && state.Took
		}
		granted, left := upsert(op, units), rows.Read(t, op)
		// The policy is that of the row that a take leaves.
		decides := before.Period == 0 || before.Period == want.Period && before.Limit == want.Limit && before.At <= op.At
		switch {
		case granted && !took, !granted && took && decides:
			t.Fatalf("seed %d: %d times %+v on\n     %+v: granted = %t, want %t", seed, units, op, before, granted, took)
		case granted && left != want, !granted && left != before:
			t.Fatalf("seed %d: %d times %+v, granted = %t, on\n     %+v\nleft %+v\nwant %+v", seed, units, op, granted, before, left, want)
		case granted:
			grants++
		}
	}
	if grants < count/10 || grants > count*9/10 {
		t.Errorf("%d of %d were granted, want a mixture", grants, count)
	}
}

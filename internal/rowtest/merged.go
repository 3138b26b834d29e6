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

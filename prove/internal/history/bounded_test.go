package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// The bound is reckoned without Apply; so it has to find no fault with what Apply does.
func TestWhatApplyGrantsIsWithinTheBound(t *testing.T) {
	slow, fast := limiter.TokenBucket{Capacity: 35, Refill: 1, Interval: 5 * time.Millisecond}, limiter.TokenBucket{Capacity: 20, Refill: 2, Interval: 5 * time.Millisecond}
	for _, policies := range [][]limiter.TokenBucket{{slow}, {fast, slow}} {
		for _, kinds := range []struct{ resets, reserves bool }{{}, {resets: true}, {reserves: true}, {true, true}} {
			t.Run(fmt.Sprintf("%d policies, %+v", len(policies), kinds), func(t *testing.T) {
				for seed := range uint64(1000) {
					k := applied(rand.New(rand.NewPCG(seed, 0)), policies, kinds.resets, kinds.reserves)
					if k.bounded(); len(k.report.Faults) > 0 {
						t.Fatalf("seed %d: %v", seed, k.report.Err())
					}
				}
			})
		}
	}
}

// applied is a history of one bucket, by one operation after another.
func applied(r *rand.Rand, policies []limiter.TokenBucket, resets, reserves bool) *rowHistory {
	k := &rowHistory{key: Key{Name: "bucket"}, report: new(Report)}
	row, now := limiter.Row{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	for range 400 {
		now += r.Int64N(int64(2 * time.Millisecond))
		p := policies[0]
		if r.IntN(8) == 0 {
			p = policies[len(policies)-1]
		}
		op := limiter.Op{Kind: limiter.OpTake, Policy: p, Cost: 1}
		if r.IntN(8) == 0 {
			op.Cost = 1 + r.Int64N(p.Capacity)
		}
		switch {
		case resets && r.IntN(100) == 0:
			op.Kind = limiter.OpReset
		case reserves && r.IntN(6) == 0:
			op.MaxWait = time.Duration(r.Int64N(p.Capacity * int64(p.Step())))
		}
		next, s := op.Apply(row, now)
		k.steps = append(k.steps, step{old: row, new: next, call: &Call{Op: op, State: s}})
		row = next
	}
	return k
}

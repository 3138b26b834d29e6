package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	specs "github.com/sqlimit/limiter/prove/internal/kinds"
)

// The bound is reckoned without Apply; so it has to find no fault with what Apply does.
func TestBoundsOfApply(t *testing.T) {
	slow, fast := limiter.TokenBucket{Capacity: 35, Refill: 1, Interval: 5 * time.Millisecond}, limiter.TokenBucket{Capacity: 20, Refill: 2, Interval: 5 * time.Millisecond}
	for _, policies := range [][]limiter.TokenBucket{{slow}, {fast, slow}} {
		for _, kinds := range []struct{ resets, reserves, charges bool }{{}, {resets: true}, {reserves: true}, {resets: true, reserves: true}, {charges: true}, {true, true, true}} {
			t.Run(fmt.Sprintf("%d policies, %+v", len(policies), kinds), func(t *testing.T) {
				for seed := range uint64(1000) {
					k := applied(rand.New(rand.NewPCG(seed, 0)), policies, kinds.resets, kinds.reserves, kinds.charges)
					k.bounded()
					if k.blocked(); len(k.report.Faults) > 0 {
						t.Fatalf("seed %d: %v", seed, k.report.Err())
					}
				}
			})
		}
	}
}

// Each step of a store that does only a part of a charge or block may look right.
func TestBoundsSeePartialCharges(t *testing.T) {
	const start, ms = 1_800_000_000_000_000_000, int64(time.Millisecond)
	for _, spec := range specs.Made {
		p := spec.Policies[0]
		if op := (limiter.Op{Policy: p}); spec.GivesBack || op.CountsRefusals() {
			continue
		}
		for _, c := range []struct {
			kind       limiter.OpKind
			cost, part int64
		}{{limiter.OpCharge, 30, 8}, {limiter.OpBlock, 40 * ms, 5 * ms}} {
			for _, done := range []int64{c.cost, c.part} {
				k := &rowHistory{key: Key{Kind: limiter.KindOf(p)}, report: new(Report)}
				row := limiter.Row{}
				for i, at := range []int64{0, 1, 6, 21} {
					asked := limiter.Op{Kind: limiter.OpTakeUpTo, Policy: p, Cost: 10}
					op := asked
					if i == 0 {
						asked.Kind, asked.Cost = c.kind, c.cost
						op.Kind, op.Cost = c.kind, done
					}
					next, s := op.Apply(row, start+at*ms)
					k.steps = append(k.steps, step{old: row, new: next, call: &Call{Op: asked, State: s}})
					row = next
				}
				k.bounded()
				k.blocked()
				if seen := k.report.Of(Over) > 0; seen != (done < c.cost) {
					t.Errorf("%+v, %+v, of which %d is done: %v", p, c, done, k.report.Err())
				}
			}
		}
	}
}

// applied is a history of one bucket, by one operation after another. With charges there are also
// blocks and takes of up to their cost.
func applied(r *rand.Rand, policies []limiter.TokenBucket, resets, reserves, charges bool) *rowHistory {
	k := &rowHistory{key: Key{Kind: limiter.KindBucket, Name: "bucket"}, report: new(Report)}
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
		case charges && r.IntN(10) == 0:
			op.Kind, op.Cost = limiter.OpCharge, 1+r.Int64N(2+r.Int64N(2*p.Capacity))
		case charges && r.IntN(9) == 0:
			op.Kind, op.Cost = limiter.OpTakeUpTo, 1+r.Int64N(2*p.Capacity)
		case charges && r.IntN(60) == 0:
			op.Kind, op.Cost = limiter.OpBlock, 1+r.Int64N(int64(50*time.Millisecond))
		}
		next, s := op.Apply(row, now)
		k.steps = append(k.steps, step{old: row, new: next, call: &Call{Op: op, State: s}})
		row = next
	}
	return k
}

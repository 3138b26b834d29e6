package history

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	specs "github.com/sqlimit/limiter/prove/internal/kinds"
)

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

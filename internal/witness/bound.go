package witness

import (
	"fmt"

	"github.com/sqlimit/limiter"
)

// bounded checks the promise of the policy itself, without Op.Apply. For any two grants of a
// bucket, all grants from the first to the second cost at most its capacity and what came back
// between their clock readings. No window has more than its limit.
func (h *history) bounded() error {
	if len(h.grants) == 0 {
		return nil
	}
	switch p := h.grants[0].Op.Policy.(type) {
	case limiter.TokenBucket:
		return boundedBucket(h.grants, p)
	case limiter.FixedWindow:
		return boundedWindows(h.grants, p)
	}
	return fmt.Errorf("bound: a policy of type %T", h.grants[0].Op.Policy)
}

// boundedBucket checks all pairs in one pass. It keeps the least value so far of what was spent
// before a grant, less its clock reading: that is the worst beginning.
func boundedBucket(grants []Call, p limiter.TokenBucket) error {
	step := int64(p.Step())
	spent, least := int64(0), int64(1)<<62
	for i, g := range grants {
		least = min(least, spent-g.State.Now)
		spent += g.Op.Cost * step
		if over := spent - g.State.Now - least - p.Capacity*step; over > 0 {
			return fmt.Errorf("bound: up to grant %d of %d, some stretch of time has %d ns' worth of tokens more than the policy allows", i+1, len(grants), over)
		}
	}
	return nil
}

func boundedWindows(grants []Call, p limiter.FixedWindow) error {
	used := make(map[int64]int64)
	for i, g := range grants {
		start, clock := g.State.Row.Start, max(g.State.Now, g.State.Row.At)
		if clock < start || clock >= start+int64(p.Window) || start%int64(p.Window) != 0 {
			return fmt.Errorf("bound: grant %d of %d is in the window of %d at %d", i+1, len(grants), start, clock)
		}
		if used[start] += g.Op.Cost; used[start] > p.Limit {
			return fmt.Errorf("bound: %d in the window of %d, %d more than the policy allows", used[start], start, used[start]-p.Limit)
		}
	}
	return nil
}

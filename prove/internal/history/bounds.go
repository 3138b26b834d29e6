package history

import (
	"iter"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/tables"
)

// bounded checks the promise of the policy itself, without [limiter.Op.Apply]. Between any two grants of a bucket,
// all grants cost at most the capacity plus the refill in that time. What was given back does not count. No window
// has more than its limit. A charge may exceed both, but a later grant must not. If the policy changed, the largest
// capacity, the fastest refill and the highest limit count. Windows of several lengths are not checked.
func (k *rowHistory) bounded() { kinds[k.key.Kind].bounded(k) }

// policies returns the shortest and the longest period of the steps, and the highest limit.
func (k *rowHistory) policies() (shortest, longest, ahead, limit int64) {
	for _, s := range k.steps {
		if c := s.call; c != nil {
			n := tables.All[k.key.Kind-1].Numbers(&c.Op, c.State.Now)
			if shortest == 0 || n.Period < shortest {
				shortest = n.Period
			}
			longest, limit = max(longest, n.Period), max(limit, n.Limit)
		}
	}
	return shortest, longest, shortest * limit, limit
}

// boundedBucket looks at all pairs in one pass: with what was spent before a grant, less
// the instant at which it may act, the least so far is that of the worst beginning.
func (k *rowHistory) boundedBucket() {
	step, slowest, ahead, _ := k.policies()
	if len(k.steps) == 0 || k.opened.FullAt > k.steps[0].new.At {
		return // what was spent before is not known
	}
	const never = int64(1) << 62
	spent, least, latest := int64(0), never, int64(0)
	for i, s := range k.counted() {
		switch c := s.call; c.Op.Kind {
		case limiter.OpReset:
			spent, least, latest = 0, never, 0 // what was booked ahead is forgotten, too
		case limiter.OpRefund, limiter.OpCancel:
			if step != slowest {
				return // what the change of policy has cut off cannot be told from what is given back
			}
			spent -= c.Op.Cost * step
		case limiter.OpCharge:
			least = min(least, spent-s.new.At)
			spent += c.Op.Cost * step
		case limiter.OpTake, limiter.OpTakeUpTo:
			act := s.acts()
			if step != slowest { // the fastest refill is the most that comes back, not the least that came
				latest = max(latest, act)
				act = latest
			}
			least = min(least, spent-act)
			spent += s.passed() * step
			if over := spent - act - least - ahead; over > 0 {
				k.fault(Over, "up to step %d of %d some stretch of time has %d ns' worth of tokens more than the policy allows", i, len(k.steps), over)
				return
			}
		}
	}
}

// boundedWindows checks each window, or every stretch of time as long as a sliding window, by its slices.
func (k *rowHistory) boundedWindows() {
	shortest, longest, _, limit := k.policies()
	if shortest != longest {
		return
	}
	sliding := k.key.Kind == limiter.KindSliding
	counts := map[int64]int64{k.opened.Start: k.opened.Used} // by the start of the window or slice
	for i, s := range k.counted() {
		start := s.new.Start
		switch c := s.call; c.Op.Kind {
		case limiter.OpReset:
			clear(counts)
		case limiter.OpRefund, limiter.OpCancel:
			if sliding {
				return // what is given back is of slices that the history does not name
			}
			counts[s.old.Start] -= s.old.Used - s.new.Used
		case limiter.OpCharge:
			if sliding {
				start = min(start, s.new.At-s.new.At%longest)
			}
			counts[start] += c.Op.Cost
		case limiter.OpTake, limiter.OpTakeUpTo:
			counts[start] += s.passed()
			sum, own := counts[start], true
			if !sliding {
				own = start == tables.All[k.key.Kind-1].Numbers(&c.Op, start).Start
			}
			for n := int64(1); sliding && n <= 16; n++ {
				sum += counts[start-n*longest]
			}
			if sum > limit || !own {
				k.fault(Over, "up to step %d of %d the window of %d has %d of %d", i, len(k.steps), start, sum, limit)
				return
			}
		}
	}
}

// blocked checks that nothing passes before a block is over, unless a reset or refund ended it.
func (k *rowHistory) blocked() {
	if shortest, longest, _, _ := k.policies(); kinds[k.key.Kind].oneLength && shortest != longest {
		return
	}
	over := int64(0)
	for i, s := range k.counted() {
		switch c := s.call; c.Op.Kind {
		case limiter.OpReset, limiter.OpRefund: // a refund's clock may be ahead of that of the takes after it
			over = 0
		case limiter.OpBlock:
			now := c.State.Now
			if c.Outcome == Unknown {
				now = k.clock[c]
			}
			over = max(over, now+c.Op.Cost)
		case limiter.OpTake, limiter.OpTakeUpTo:
			if early := over - s.acts(); early > 0 {
				k.fault(Over, "step %d of %d passes %d ns before a block is over: %+v", i, len(k.steps), early, *c)
				return
			}
		}
	}
}

// counted returns the steps that a call explains, by number from 1, without takes that let nothing pass.
func (k *rowHistory) counted() iter.Seq2[int, *step] {
	return func(yield func(int, *step) bool) {
		for i := range k.steps {
			s := &k.steps[i]
			if s.call != nil && (!s.call.takes() || s.passed() > 0) && !yield(i+1, s) {
				return
			}
		}
	}
}

// passed is the cost that the take of a step let pass, now or later.
func (s *step) passed() int64 {
	c, told := s.call, s.call.State
	if c.Outcome == Unknown {
		_, told = c.Op.Apply(s.old, s.new.At)
	}
	switch {
	case s.old == s.new || !told.Took:
		return 0
	case c.Op.Kind == limiter.OpTakeUpTo:
		return told.Taken
	}
	return c.Op.Cost
}

// acts is when what the take of a step let pass may act.
func (s *step) acts() int64 {
	return max(s.new.Start, s.new.At+max(0, s.new.FullAt-s.new.At-s.new.Period*s.new.Limit))
}

// kind is what the witness knows of a kind of policy, beside [limiter.Op.Apply].
type kind struct {
	bounded func(k *rowHistory) // checks the promise of the policy itself
	// blocked returns the latest end of a block that may have left a row. It is nil if the row tells more.
	blocked func(row *limiter.Row) int64
	// oneLength is whether only keys of one period are checked: a change of it may shorten a block.
	oneLength bool
}

var kinds = map[limiter.PolicyKind]kind{
	limiter.KindBucket: {bounded: (*rowHistory).boundedBucket},
	limiter.KindWindow: {
		bounded: (*rowHistory).boundedWindows, oneLength: true,
		blocked: func(row *limiter.Row) int64 { return row.Start + row.Period - 1 },
	},
	limiter.KindSliding: {bounded: (*rowHistory).boundedWindows, blocked: func(row *limiter.Row) int64 { return row.Start - 1 }},
}

// kindOf returns what is known of the kind of a call's policy.
func kindOf(c *Call) kind { return kinds[limiter.KindOf(c.Op.Policy)] }

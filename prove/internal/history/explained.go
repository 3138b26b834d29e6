package history

import (
	"math"

	"github.com/sqlimit/limiter"
)

// explained finds fault with steps that no call explains, and with grants that no step has.
func (k *rowHistory) explained() {
	for i := range k.steps {
		s := &k.steps[i]
		switch {
		case s.swept:
			if now := k.latest(); !s.old.Expired(now) {
				k.fault(Swept, "at %d\n%+v", now, s.old)
			}
		case s.call == nil:
			k.unexplained(i, s)
		case s.call.takes() && (s.call.State.Took || s.call.Outcome == Unknown):
			k.report.Charged++
		}
	}
	for _, c := range k.calls {
		if c.Outcome == Answered && c.granted() && !k.used[c] {
			k.fault(Lost, "%s", c)
		}
	}
}

// latest is what the store's clock read at the latest.
func (k *rowHistory) latest() int64 {
	if k.offset.least == math.MinInt64 || k.offset.least > k.offset.most+slack || len(k.calls) == 0 {
		return 1<<61 - 1
	}
	var ended int64
	for _, c := range k.calls {
		ended = max(ended, c.Ended)
	}
	// The sweep may have come after the last call, but not by much.
	const minute = 60_000_000_000
	return k.offset.most + ended + minute
}

// unexplained says what is wrong with a step that no call explains.
func (k *rowHistory) unexplained(i int, s *step) {
	for _, c := range k.told[s.new] {
		if k.used[c] || !c.granted() && !c.forced() {
			continue
		}
		k.used[c] = true
		next, want := c.apply(s.old, c.State.Now)
		if c.takes() && (!want.Took || c.State.Taken > want.Taken) {
			k.fault(Over, "step %d of %d: %s\n found %+v", i+1, len(k.steps), c, s.old)
		} else {
			k.fault(Answer, "step %d of %d: %s\n found %+v\n so that it should have left %+v", i+1, len(k.steps), c, s.old, next)
		}
		return
	}
	hint := ""
	for _, c := range k.calls {
		if c.Outcome == NotApplied && c.Op.Kind != limiter.OpLook && k.makes(c, s, k.offset.during(c)) {
			hint = "\nas does what is said not to have been applied: " + c.String()
			break
		}
	}
	kind := Double
	if s.new.FullAt < s.old.FullAt || s.new.Start < s.old.Start || s.new.Start == s.old.Start && s.new.Used < s.old.Used || s.new == s.old {
		kind = Given
	}
	k.fault(kind, "step %d of %d makes of\n     %+v\n     %+v%s", i+1, len(k.steps), s.old, s.new, hint)
}

// inTime checks that no call had ended before one began that comes before it.
func (k *rowHistory) inTime() {
	began := int64(math.MinInt64)
	for i, s := range k.steps {
		if s.call == nil {
			continue
		}
		if s.call.end() < began {
			k.fault(Order, "step %d of %d was told %d ns before a call began that the row has before it: %s", i+1, len(k.steps), began-s.call.Ended, s.call)
			return // those after it say the same
		}
		began = max(began, s.call.Began)
	}
}

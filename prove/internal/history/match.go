package history

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/sqlimit/limiter"
)

// match finds the call of each step. First come the steps that only one call fits. Then, of several calls
// that fit, the one that ended first wins. Steps that are left may be of calls of unknown outcome.
func (k *rowHistory) match() {
	var open []int
	for i := range k.steps {
		if k.steps[i].call != nil {
			continue // a call of unknown outcome among several
		}
		if found := k.candidates(&k.steps[i], math.MaxInt64); len(found) == 1 {
			k.take(i, found[0])
		} else if !k.steps[i].swept {
			open = append(open, i)
		}
	}
	open = k.pass(open, func(i int, began, ended int64) *Call { return first(k.candidates(&k.steps[i], ended), began) })
	open = k.pass(open, k.untold)
	k.pass(open, k.unknown)
}

// pass finds calls for open steps, each between the latest beginning of the calls before it and the
// earliest end of the calls after it. It returns the steps that are left.
func (k *rowHistory) pass(open []int, find func(i int, began, ended int64) *Call) (rest []int) {
	if len(open) == 0 {
		return nil
	}
	began, ended := k.between()
	for _, i := range open {
		if c := find(i, began[i], ended[i]); c != nil {
			k.take(i, c)
			began, ended = k.between()
		} else {
			rest = append(rest, i)
		}
	}
	return rest
}

func (k *rowHistory) take(i int, c *Call) {
	k.steps[i].call = c
	k.used[c] = true
}

// candidates returns the calls that tell of a step, and that began by an instant.
func (k *rowHistory) candidates(s *step, by int64) (found []*Call) {
	for _, c := range k.told[s.new] {
		if k.used[c] || c.Began > by {
			continue
		}
		if c.changes() {
			if next, ok := c.tells(s.old, k.offset.during(c)); ok && next == s.new && next != s.old {
				found = append(found, c)
			}
			continue
		}
		if next, state := c.apply(s.old, c.State.Now); next != s.new || state != c.State {
			continue
		}
		if s.old != s.new || c.forced() || c.Op.CountsRefusals() {
			found = append(found, c)
		}
	}
	return found
}

// first is the call that ended first, but not before an instant.
func first(calls []*Call, ended int64) (c *Call) {
	for _, other := range calls {
		if other.end() >= ended && (c == nil || other.end() < c.end()) {
			c = other
		}
	}
	return c
}

// end is when the operation was over at the latest.
func (c *Call) end() int64 {
	if c.mayHaveWritten() || c.Outcome == Unknown {
		return math.MaxInt64
	}
	return c.Ended
}

// untold finds a refund, cancel or reset whose answer does not tell the row that it left: all resets leave
// the same row, and nobody knows the row of an unknown outcome. It prefers an answered call, and of these
// the one that ended first. Later attempts choose another one, by what the first ones have found.
func (k *rowHistory) untold(i int, began, ended int64) *Call {
	s := &k.steps[i]
	fit := k.fitting(ended, func(c *Call) bool {
		told := c.Outcome == Answered && c.State.Took
		n, learned := k.by[c]
		return c.changes() && (!learned || i < n) && (told || c.Outcome == Unknown) && c.end() >= began && k.makes(c, s, k.offset.during(c))
	})
	slices.SortStableFunc(fit, func(a, b *Call) int { return cmp.Compare(a.end(), b.end()) })
	return k.choose(fit, i)
}

// unknown finds a take, charge or block of unknown outcome that makes a step.
func (k *rowHistory) unknown(i int, _, ended int64) *Call {
	s := &k.steps[i]
	c := k.choose(k.fitting(ended, func(c *Call) bool { return c.mayHaveWritten() && k.makes(c, s, span{}) }), i)
	if c != nil {
		k.clock[c], _ = c.reads(s)
	}
	return c
}

// fitting returns the calls that explain nothing yet, began by an instant and fit.
func (k *rowHistory) fitting(by int64, fits func(*Call) bool) (fit []*Call) {
	for _, c := range k.calls {
		if c.Began > by {
			break
		}
		if !k.used[c] && fits(c) {
			fit = append(fit, c)
		}
	}
	return fit
}

// choose returns the first of the calls that fit a step. Later attempts choose others now and then.
func (k *rowHistory) choose(fit []*Call, step int) *Call {
	r := rand.New(rand.NewPCG(uint64(k.attempt), uint64(step)))
	switch {
	case len(fit) == 0:
		return nil
	case k.attempt == 0 || r.IntN(2<<(k.attempt%6)) > 0:
		return fit[0]
	}
	return fit[r.IntN(len(fit))]
}

// reads returns what the clock read for a take, charge or block if it made a step, and whether it can
// have made it. The row tells the reading, unless the row was ahead of the clock. Then the end of a
// block may tell the latest reading that is possible.
func (c *Call) reads(s *step) (now int64, ok bool) {
	now = s.new.At
	if latest := kindOf(c).blocked; latest != nil && c.Op.Kind == limiter.OpBlock {
		now = min(now, latest(&s.new)-c.Op.Cost)
	}
	next, _ := c.Op.Apply(s.old, now)
	return now, next == s.new && (next != s.old || c.forced() || c.Op.CountsRefusals())
}

// makes reports whether c makes a step, if it was applied.
func (k *rowHistory) makes(c *Call, s *step, during span) bool {
	if !c.changes() {
		_, ok := c.reads(s)
		return ok
	}
	applied := *c
	applied.Outcome, applied.State.Took, applied.State.Row = Answered, true, cmp.Or(c.State.Row, s.new)
	next, ok := applied.tells(s.old, during)
	return ok && next == s.new
}

// between returns for each step the latest beginning of a call before it and the earliest end of one after it.
func (k *rowHistory) between() (began, ended []int64) {
	began, ended = make([]int64, len(k.steps)), make([]int64, len(k.steps))
	latest := int64(math.MinInt64)
	for i, s := range k.steps {
		began[i] = latest
		if s.call != nil {
			latest = max(latest, s.call.Began)
		}
	}
	earliest := int64(math.MaxInt64)
	for i := len(k.steps) - 1; i >= 0; i-- {
		ended[i] = earliest
		if c := k.steps[i].call; c != nil {
			earliest = min(earliest, c.end())
		}
	}
	return began, ended
}

// span is what the store's clock may have read during a call.
type span struct{ from, to int64 }

// offset is by how much the store's clock is ahead of [Clock]: what the calls that tell its reading allow.
type offset struct{ least, most int64 }

// slack is what a clock that is being set right loses or wins in the time of a history.
const slack = 2_000_000

func offsetOf(h *History) offset {
	o := offset{math.MinInt64, math.MaxInt64}
	for i := range h.Calls {
		c := &h.Calls[i]
		if c.Outcome != Answered || c.changes() || c.Op.At != 0 {
			continue
		}
		o.least, o.most = max(o.least, c.State.Now-c.Ended), min(o.most, c.State.Now-c.Began)
	}
	return o
}

// during is what the clock may have read while c was under way.
func (o offset) during(c *Call) span {
	if c.Op.At != 0 {
		return span{c.Op.At, c.Op.At}
	}
	if o.least == math.MinInt64 || o.least > o.most+slack {
		return span{1, 1<<61 - 1}
	}
	ended := c.Ended
	if c.Outcome == Unknown {
		ended = 1 << 60
	}
	return span{o.least + c.Began - slack, o.most + ended + slack}
}

// apply applies c to row if the store's clock reads now, in the words of the store's answer.
func (c *Call) apply(row limiter.Row, now int64) (limiter.Row, limiter.State) {
	next, s := c.Op.Apply(row, now)
	s.Tick = c.State.Tick
	return next, s
}

// tells returns the row that c leaves if it found row, and whether it then has to answer
// what it did. An answer that tells no clock may be of any within the span.
func (c *Call) tells(row limiter.Row, during span) (limiter.Row, bool) {
	if !c.changes() {
		next, s := c.apply(row, c.State.Now)
		return next, s == c.State
	}
	instants := []int64{during.from, during.to, row.FullAt - 1, row.Start, row.Start + row.Period - 1}
	if row.List != "" { // each slice that the clock may be in
		for n := range int64(17) {
			instants = append(instants, row.Start+(n+1)*row.Period)
		}
	}
	for _, now := range instants {
		if now < during.from || now > during.to {
			continue
		}
		if next, s := c.Op.Apply(row, now); s.Took == c.State.Took && (c.State.Row == limiter.Row{} || next == c.State.Row) {
			return next, true
		}
	}
	return row, false
}

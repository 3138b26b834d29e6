package history

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/sqlimit/limiter"
)

// match finds the call of each step. First come the steps that the answer of only one call tells of.
func (k *rowHistory) match() {
	for i := range k.steps {
		if found := k.tellers(&k.steps[i]); len(found) == 1 && k.steps[i].call == nil {
			k.take(i, found[0])
		}
	}
	for i, s := range k.steps {
		if s.call == nil && !s.swept {
			k.find(i, map[*Call]bool{})
		}
	}
}

// tellers returns the calls whose answers tell of a step.
func (k *rowHistory) tellers(s *step) (found []*Call) {
	for _, c := range k.told[s.new] {
		if !k.used[c] && k.makes(c, s) {
			found = append(found, c)
		}
	}
	return found
}

// find finds a call for step i, and reports whether there is one: a call that explains nothing yet, or one that
// explains a step for which there is another call. Each call is tried once.
func (k *rowHistory) find(i int, tried map[*Call]bool) bool {
	fit := k.fitting(i)
	if free := slices.DeleteFunc(slices.Clone(fit), func(c *Call) bool { return k.used[c] }); len(free) > 0 {
		k.take(i, k.choose(free, i))
		return true
	}
	for _, c := range fit {
		if tried[c] {
			continue
		}
		tried[c] = true
		other := slices.IndexFunc(k.steps, func(s step) bool { return s.call == c })
		k.steps[i].call, k.steps[other].call = c, nil
		if k.find(other, tried) {
			return true
		}
		k.steps[i].call, k.steps[other].call = nil, c
	}
	return false
}

func (k *rowHistory) take(i int, c *Call) {
	k.steps[i].call = c
	k.used[c] = true
}

// end is when the operation was over at the latest.
func (c *Call) end() int64 {
	if c.mayHaveWritten() || c.Outcome == Unknown {
		return math.MaxInt64
	}
	return c.Ended
}

// fitting returns the calls that may have made step i: between the latest beginning of the calls before it and the
// earliest end of the calls after it. Answered calls come first, and of these the one that ended first.
func (k *rowHistory) fitting(i int) (fit []*Call) {
	began, ended := k.between()
	for _, c := range k.calls {
		n, learned := k.by[c]
		if c.Began <= ended[i] && c.end() >= began[i] && (!learned || i < n) && k.makes(c, &k.steps[i]) {
			fit = append(fit, c)
		}
	}
	slices.SortStableFunc(fit, func(a, b *Call) int { return cmp.Compare(a.end(), b.end()) })
	return fit
}

// choose returns the first of the calls that fit a step. Later attempts choose others now and then.
func (k *rowHistory) choose(fit []*Call, step int) *Call {
	r := rand.New(rand.NewPCG(uint64(k.attempt), uint64(step)))
	if k.attempt == 0 || r.IntN(2<<(k.attempt%6)) > 0 {
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

// makes reports whether c may have made a step.
func (k *rowHistory) makes(c *Call, s *step) bool {
	switch {
	case c.mayHaveWritten():
		_, ok := c.reads(s)
		return ok
	case c.Outcome == NotApplied || c.changes() && c.Outcome == Answered && !c.State.Took:
		return false
	case c.changes(): // an answer that tells no row may be of any clock at which c leaves this one
		applied := *c
		applied.Outcome, applied.State.Took, applied.State.Row = Answered, true, cmp.Or(c.State.Row, s.new)
		next, ok := applied.tells(s.old, k.offset.during(c))
		return ok && next == s.new && (next != s.old || c.State.Row == limiter.Row{}) // a reset of a row that was reset
	}
	next, state := c.apply(s.old, c.State.Now)
	return next == s.new && state == c.State && (s.old != s.new || c.forced() || c.Op.CountsRefusals())
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

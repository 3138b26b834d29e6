package history

import (
	"math"

	"github.com/sqlimit/limiter"
)

// span is what the store's clock may have read during a call.
type span struct{ from, to int64 }

// offset is by how much the store's clock is ahead of [Clock]: from the least to the most
// that the calls allow, which tell what it read.
type offset struct{ least, most int64 }

// slack is what a clock that is being set right loses or wins in the time of a history.
const slack = 2_000_000

// offsetOf works the offset out.
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

// apply is what the operation of c does to row if the store's clock reads now, in the
// words of the store's answer.
func (c *Call) apply(row limiter.Row, now int64) (limiter.Row, limiter.State) {
	next, s := c.Op.Apply(row, now)
	s.Tick = c.State.Tick
	return next, s
}

// tells returns the row that c leaves if it found row, and whether it then has to answer
// what it did. An answer that tells no clock may be of any within the span.
func (c *Call) tells(row limiter.Row, during span) (limiter.Row, bool) {
	switch {
	case c.Outcome == DenyCache:
		// Refused at one time is refused at every earlier one.
		_, s := c.Op.Apply(row, during.from)
		return row, !s.Took
	case !c.changes():
		next, s := c.apply(row, c.State.Now)
		return next, s == c.State
	}
	for _, now := range [...]int64{during.from, during.to, row.FullAt - 1, row.Start, row.Start + row.Period - 1} {
		if now < during.from || now > during.to {
			continue
		}
		if next, s := c.Op.Apply(row, now); s.Took == c.State.Took && (c.State.Row == limiter.Row{} || next == c.State.Row) {
			return next, true
		}
	}
	return row, false
}

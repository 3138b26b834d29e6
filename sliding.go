package limiter

import (
	"fmt"
	"time"
)

// minSliding is the shortest sliding window: a slice is then one tick of a millisecond clock.
const minSliding = sliceCount * time.Millisecond

// SlidingWindow is a policy that allows at most Limit in any span of time of length Window. All of it may
// pass at once. The store counts in slices of Window/16, aligned to 1970-01-01T00:00:00Z: the current
// slice and the 16 before it count. What was taken in one slice comes back together, Window after it was
// taken or up to one slice later.
//
// A [FixedWindow] allows up to twice its limit around an edge. A [TokenBucket] allows its capacity, and what
// refills meanwhile. A SlidingWindow allows neither, but its rows are larger: about 250 bytes.
//
// After a change of Limit, all counts stay. After a change of Window, what was taken comes back up to one
// slice of the new length later. If Window became longer, only what the row still holds counts. If a key has
// two Windows in turn, let one Slice be a multiple of the other. Otherwise each turn moves counts ahead, and
// they may never come back. The zero SlidingWindow is not valid.
type SlidingWindow struct {
	Limit  int64         // the cost that passes in any Window: 1 to 2^60
	Window time.Duration // 16 ms to 30 years
}

// Slice returns the time in which requests are counted together: Window/16, rounded up to the nanosecond. It
// returns 0 if Window is 0 or negative.
func (w SlidingWindow) Slice() time.Duration {
	if w.Window <= 0 {
		return 0
	}
	return (w.Window-1)/sliceCount + 1
}

// String returns the policy as text, such as "100 in any 1h0m0s".
func (w SlidingWindow) String() string { return fmt.Sprintf("%d in any %v", w.Limit, w.Window) }

func (w SlidingWindow) check() error {
	if w.Limit < 1 || w.Limit > maxLimit {
		return invalid("SlidingWindow.Limit is %d; it must be 1 to 2^60", w.Limit)
	}
	return checkSpan("SlidingWindow.Window", w.Window, minSliding)
}

func (w SlidingWindow) sliding() sliding { return sliding{w.Limit, int64(w.Slice())} }

func (w SlidingWindow) limit() int64 { return w.Limit }

// sliding is the algorithm of a [SlidingWindow]. The newest slice of a row starts at Row.Start. If that is
// ahead of the clock, a reservation booked it, or the key is blocked until then.
type sliding struct{ lim, length int64 }

func (w *sliding) apply(op *Op, row *Row, now int64, s *State) {
	switch op.Kind {
	case OpTake, OpTakeUpTo:
		w.take(op, row, now, s)
		return
	case OpCharge:
		w.charge(op, row, now, s)
	case OpBlock:
		// The slice after the one in which the block ends: its start ends the block.
		w.found(op, row, now)
		s.Took = true
		row.At = max(now, row.At)
		end := row.At + op.Cost
		w.moveTo(row, end-end%w.length+w.length)
	case OpRefund:
		s.Took = row.refundSlices(op, max(now, row.At))
	case OpCancel:
		if row.Start == op.Booked.Row.Start && row.Period == op.Booked.Row.Period && now <= op.Act() {
			c := sumsOf(row.List)
			if n := min(op.Cost, c[newest]-c[newest-1]); n > 0 {
				c[newest] -= n
				row.List, s.Took = c.list(), true
			}
		}
	case OpReset:
		s.Took = row.Period != 0
		row.Start, row.At, row.List = 0, 0, ""
	default: // OpLook
		probe, kept := op.probe(), *row
		c := w.find(&probe, &kept, now, s)
		refused := w.target(&s.Row, &c, probe.Cost, s.clock()) > s.latest(&probe)
		if refused || row.Period > w.length && c[newest] > c[0] {
			w.refuse(&probe, &kept, now, s)
			*row = kept
		}
		return
	}
	s.Row = *row
}

func (w *sliding) take(op *Op, row *Row, now int64, s *State) {
	c := w.find(op, row, now, s)
	start := w.target(&s.Row, &c, op.needs(), s.clock())
	if start > s.latest(op) {
		w.refuse(op, row, now, s)
		return
	}
	c.roll(min(newest, (start-s.Row.Start)/w.length))
	cost := op.Cost
	if op.Kind == OpTakeUpTo {
		cost = min(cost, w.lim-(c[newest]-c[0]))
		s.Taken = cost
	}
	c[newest] += cost
	s.Row.Start, s.Row.List, s.Row.At = start, c.list(), s.clock()
	s.Took = true
	*row = s.Row
}

// charge counts the cost in the slice at the clock, whatever is left. If the newest slice lies ahead, that is
// an older one.
func (w *sliding) charge(op *Op, row *Row, now int64, s *State) {
	w.found(op, row, now)
	clock := max(now, row.At)
	c := sumsOf(row.List)
	s.Took = row.Start <= clock && op.Cost <= w.lim-(c[newest]-c[row.slicesTo(clock, w.length)])
	current := clock - clock%w.length
	w.moveTo(row, current)
	c = sumsOf(row.List)
	if c[newest] > maxSum-op.Cost {
		c.rebase()
	}
	if i := newest - (row.Start-current)/w.length; i > 0 {
		c.count(i, max(0, min(op.Cost, maxSum-c[newest])))
	}
	row.List, row.At = c.list(), clock
}

// moveTo makes the slice at start the newest one of row, unless that is a later one.
func (w *sliding) moveTo(row *Row, start int64) {
	if start > row.Start || row.List == "" {
		c := sumsOf(row.List)
		c.roll(min(newest, (start-row.Start)/w.length))
		row.Start, row.List = start, c.list()
	}
}

// found corrects row for a clock that was stepped back, and converts it to this policy.
func (w *sliding) found(op *Op, row *Row, now int64) {
	w.anchor(op, row, now)
	w.carry(row, max(now, row.At))
}

// find sets s.Row to the row that op finds, by this policy, and returns its sums.
func (w *sliding) find(op *Op, row *Row, now int64, s *State) sums {
	w.anchor(op, row, now)
	s.Row = *row
	w.carry(&s.Row, s.clock())
	return sumsOf(s.Row.List)
}

// target returns the start of the first slice, from the one at clock or the newest one, in which cost fits.
func (w *sliding) target(row *Row, c *sums, cost, clock int64) int64 {
	first := max(row.Start, clock-clock%w.length)
	for d := (first - row.Start) / w.length; d < newest; d++ {
		if c[newest]-c[d]+cost <= w.lim {
			return row.Start + d*w.length
		}
	}
	return max(first, row.Start+newest*w.length)
}

// refuses reports whether the take op is refused on a row of this policy that is not ahead of the clock.
func (w *sliding) refuses(op *Op, row *Row, now int64) bool {
	c := sumsOf(row.List)
	return w.target(row, &c, op.needs(), now) > now+int64(op.MaxWait)
}

// refuse sets row to what the store keeps after a refusal. If slices became shorter, that is the converted
// row. If they became longer, the row stays, because two policies in use together would otherwise lose what
// the longer one counts. Then s.Wait says how long the request waits under the row as it is.
func (w *sliding) refuse(op *Op, row *Row, now int64, s *State) {
	switch {
	case row.Period > w.length:
		s.Row.At = s.clock()
		*row = s.Row
	case row.Period < w.length && row.Period != 0:
		s.Wait = w.waitUnder(op, row, now)
	}
}

// delay is at most maxWait for a slice that has begun by the row's clock: see [windows.delay].
func (w *sliding) delay(s *State, maxWait int64) int64 {
	c := sumsOf(s.Row.List)
	start := w.target(&s.Row, &c, 0, s.clock())
	d := max(0, start-s.Now)
	if start <= s.Row.At {
		d = min(d, maxWait)
	}
	return d
}

func (w *sliding) result(op *Op, s *State, r *Result) {
	c, clock := sumsOf(s.Row.List), s.clock()
	d := s.Row.slicesTo(clock, w.length)
	used, ahead := c[newest]-c[d], s.Row.Start > clock
	end := int64(0)
	if used > 0 || ahead {
		for d < newest && c[d] < c[newest] {
			d++
		}
		end = s.Row.Start + d*w.length
	}
	*r = Result{
		Allowed:    s.Took,
		Limit:      w.lim,
		Remaining:  max(0, w.lim-used),
		Used:       used,
		ResetAfter: time.Duration(ceilTo(max(0, end-s.Now), s.Tick)),
		Source:     SourceStore,
		Policy:     op.Policy,
		Taken:      op.taken(s),
		takenFrom:  op.takenFrom(s),
	}
	if ahead {
		r.Remaining, r.Used = 0, w.lim
		if op.Kind == OpCharge {
			r.takenFrom.start = clock - clock%w.length
		}
	}
	start := w.target(&s.Row, &c, op.needs(), clock)
	if op.Kind == OpLook {
		r.Allowed = start <= s.latest(op)
	}
	if !r.Allowed || start > clock {
		r.retryAfter(op, s, start-s.Now-int64(op.MaxWait))
	}
}

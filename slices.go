package limiter

import (
	"encoding/binary"
)

const (
	// sliceCount is how many slices a sliding window has. The slice that the clock is in counts besides them.
	sliceCount = 16
	// newest is the index of the newest of the sums of a row.
	newest = sliceCount + 1
	// maxSum is the sum at which rebase subtracts the oldest sum from all. No charge counts beyond it.
	maxSum = 1 << 61
)

// sums are the cumulative counts of a row's slices, oldest first: sums[i] includes slice i. The slice newest
// starts at Row.Start. In the slice that starts d slices after Row.Start, sums[newest] - sums[d] counts. A
// log of requests would grow with the limit, and two counters admit up to twice the limit.
type sums [newest + 1]int64

// sumsOf returns the sums of a list. They are 0 for a row that was reset.
func sumsOf(list string) (c sums) {
	if len(list) == 8*len(c) {
		for i := range c {
			c[i] = int64(binary.BigEndian.Uint64([]byte(list[8*i : 8*i+8])))
		}
	}
	return c
}

func (c *sums) list() string {
	var b [8 * (newest + 1)]byte
	for i, n := range c {
		binary.BigEndian.PutUint64(b[8*i:], uint64(n))
	}
	return string(b[:])
}

// roll moves the sums by n slices, in which nothing was counted.
func (c *sums) roll(n int64) {
	if n > 0 {
		for i := range int64(newest) {
			c[i] = c[min(newest, i+n)]
		}
	}
	if c[newest] >= maxSum {
		c.rebase()
	}
}

// rebase makes the sums begin from 0. What they count stays the same.
func (c *sums) rebase() {
	base := c[0]
	for i := range c {
		c[i] -= base
	}
}

// count adds n, which may be negative, to slice i.
func (c *sums) count(i, n int64) {
	for ; i <= newest; i++ {
		c[i] += n
	}
}

// slicesTo returns how many slices after the newest one of row the slice at clock begins, from 0 to newest.
func (r *Row) slicesTo(clock, length int64) int64 {
	return min(newest, max(0, (clock-clock%length-r.Start)/length))
}

// refundSlices gives back op.Cost under the policy that wrote the row. It credits the slice that was charged
// or, if op names none, the oldest slices that count. Those come back first anyway, so no window admits
// more than its limit.
func (r *Row) refundSlices(op *Op, clock int64) bool {
	if r.List == "" || r.Start > clock {
		return false
	}
	c, d, n := sumsOf(r.List), r.slicesTo(clock, r.Period), op.Cost
	if from := &op.Booked.Row; from.Period != 0 {
		back := r.Start - from.Start
		i := newest - back/r.Period
		if from.Period != r.Period || back < 0 || back%r.Period != 0 || i <= d {
			return false
		}
		if n = min(n, c[i]-c[i-1]); n > 0 {
			c.count(i, -n)
		}
	} else if n = min(n, c[newest]-c[d]); n > 0 {
		for i := int64(newest); i > d; i-- {
			c[i] -= min(n, c[i]-c[d])
		}
	}
	if n > 0 {
		r.List = c.list()
	}
	return n > 0
}

// anchor corrects a row whose clock was stepped back. Its slices move back by the same time, so that each
// counts from now on for at least as long as it would have. The newest one stays ahead if it was.
func (w *sliding) anchor(op *Op, row *Row, now int64) {
	back := row.At - now
	if back <= op.Tolerance(*row) {
		return
	}
	ahead := row.Start > row.At
	row.Start = max(0, row.Start-back/row.Period*row.Period)
	row.At = now
	if !ahead && row.Start > now { // by less than a slice
		c := sumsOf(row.List)
		copy(c[1:newest], c[:])
		row.Start, row.List = max(0, row.Start-row.Period), c.list()
	}
}

// carry converts row to this policy.
func (w *sliding) carry(row *Row, clock int64) {
	if row.Period != w.length {
		w.convert(row, clock)
	}
	row.Period, row.Limit = w.length, w.lim
}

// convert moves the count of each old slice into the new slice that holds the old one's last instant, but
// not beyond the newest new slice. The newest one is the slice at clock. If the row's newest slice lies
// ahead, it is the first new slice that begins no earlier.
func (w *sliding) convert(row *Row, clock int64) {
	if row.List == "" || row.Expired(clock) { // nothing counts, also if no sweep has deleted it
		row.Start, row.List = 0, ""
		return
	}
	start := clock - clock%w.length
	if row.Start > clock {
		start = row.Start + w.length - 1
		start -= start % w.length
	}
	was, c := sumsOf(row.List), sums{}
	for i := int64(1); i <= newest; i++ {
		end := row.Start - (newest-i)*row.Period + row.Period - 1
		if at := max(0, min(start, end-end%w.length)); start-at < newest*w.length {
			c[newest-(start-at)/w.length] += was[i] - was[i-1]
		}
	}
	for i := 1; i <= newest; i++ {
		c[i] += c[i-1]
	}
	row.Start, row.List = start, c.list()
}

// waitUnder returns how long a refused request waits if the row stays under another policy, with shorter
// slices. Each later request converts the row at its own time, so the slices that count change meanwhile.
func (w *sliding) waitUnder(op *Op, row *Row, now int64) int64 {
	for t := now; ; {
		clock := max(t, row.At)
		if row.Expired(clock) {
			return t - now
		}
		found := *row
		w.carry(&found, clock)
		c := sumsOf(found.List)
		passes := t
		if start := w.target(&found, &c, op.needs(), clock); start > row.At {
			passes = max(t, start-int64(op.MaxWait))
		}
		// The conversion changes when the newest slice begins. After that it changes at each new slice,
		// until the one that holds the newest slice's end has begun, and when the row has expired.
		changes, after := row.expires(), clock-clock%w.length+w.length
		if row.Start > clock {
			changes = row.Start
		} else if row.Start+row.Period > after {
			changes = after
		}
		if passes < changes {
			return passes - now
		}
		t = changes
	}
}

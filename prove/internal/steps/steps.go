// Package steps says what a policy admits while its clock is stepped, by the answers and not [limiter.Op.Apply].
package steps

import (
	"cmp"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowlist"
)

// Segment is what happened to a key between two steps of the clock, while no statement was under way.
type Segment struct {
	Began   int64 // no later than any reading of the clock in the segment, in nanoseconds since 1970
	Grants  []Grant
	Refused int64 // the latest reading of the clock by which a take was refused, or 0
	At      int64 // the earliest change of the row that a refusal told
}

// Refuse enters a take that was refused.
func (s *Segment) Refuse(told limiter.State) {
	if s.Refused == 0 || told.Row.At < s.At {
		s.At = told.Row.At
	}
	s.Refused = max(s.Refused, told.Now)
}

// Grant is a take that was granted, and what was told of it.
type Grant struct {
	Cost  int64
	State limiter.State
}

// Bounds is what a policy admits. Over returns by how much the grants of a key exceed that in state time: a forward
// step is time like any other, and a backward step grants nothing. What is owed at a step of more than
// [limiter.ClockTolerance] backwards is owed from there on; at a smaller one until the clock has caught up.
type Bounds interface {
	Over(segments []Segment) int64
}

// AtMost returns the most that a key can be granted in a time if the clock makes steps while statements are in
// flight. Each step backwards may add one capacity. A step forwards adds the refill of the time that it skips.
func AtMost(b Bounds, took time.Duration, made []time.Duration) int64 {
	switch p := b.(type) {
	case Window:
		return (2 + int64(took/p.Window) + int64(len(made))) * p.Limit
	case Sliding:
		return (1 + int64(took/p.Window) + int64(len(made))) * p.Limit
	}
	p := limiter.TokenBucket(b.(Bucket))
	most := p.Capacity + int64(took/p.Step()) + 1
	for _, d := range made {
		if d < 0 {
			most += p.Capacity
		} else {
			most += min(p.Capacity, int64(d/p.Step())+1)
		}
	}
	return most
}

// Bucket has the [Bounds] of a bucket.
type Bucket limiter.TokenBucket

// Over implements [Bounds].
func (p Bucket) Over(segments []Segment) (over int64) {
	step := int64(limiter.TokenBucket(p).Step())
	var full, clock int64
	for _, s := range segments {
		if s.unseen(clock) {
			continue
		}
		if back(s, clock) {
			full, clock = s.anchored()+max(0, full-clock), s.anchored()
		}
		slices.SortFunc(s.Grants, func(a, b Grant) int { return cmp.Compare(a.State.Row.FullAt, b.State.Row.FullAt) })
		for _, g := range s.Grants {
			clock = max(clock, g.State.Now)
			full = max(full, clock) + g.Cost*step
			if most := clock + p.Capacity*step; full > most {
				over += (full - most + step - 1) / step
				full = most
			}
		}
	}
	return over
}

// Window has the [Bounds] of a window.
type Window limiter.FixedWindow

// Over implements [Bounds].
func (p Window) Over(segments []Segment) (over int64) {
	var start, used, clock int64
	for _, s := range segments {
		if s.unseen(clock) {
			continue
		}
		if back(s, clock) {
			// What was counted in the window that it fell into is known only if that is the latest one.
			if into := s.Began - s.Began%int64(p.Window); into < start {
				start, used = into, p.Limit
			}
			clock = s.anchored()
		}
		slices.SortFunc(s.Grants, func(a, b Grant) int {
			x, y := a.State.Row, b.State.Row
			return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(x.Used, y.Used))
		})
		for _, g := range s.Grants {
			clock = max(clock, g.State.Now)
			if g.State.Row.Start > start {
				start, used = g.State.Row.Start, 0
			}
			used += g.Cost
			if g.State.Row.Start < start { // it was reopened
				over += g.Cost
				used -= g.Cost
			} else if used > p.Limit {
				over += used - p.Limit
				used = p.Limit
			}
		}
		if p.CountRejected { // else a refusal leaves no trace
			clock = max(clock, s.Refused)
		}
	}
	return over
}

// Sliding has the [Bounds] of a sliding window.
type Sliding limiter.SlidingWindow

// Over implements [Bounds].
func (p Sliding) Over(segments []Segment) (over int64) {
	var taken []Grant // in the latest Window, by state time
	var clock int64
	for _, s := range segments {
		if s.unseen(clock) {
			continue
		}
		if back(s, clock) {
			for i := range taken {
				taken[i].State.Now += s.anchored() - clock
			}
			clock = s.anchored()
		}
		slices.SortFunc(s.Grants, func(a, b Grant) int { return cmp.Compare(a.sum(), b.sum()) })
		for _, g := range s.Grants {
			clock = max(clock, g.State.Now)
			taken = slices.DeleteFunc(taken, func(e Grant) bool { return e.State.Now <= clock-int64(p.Window) })
			room := p.Limit
			for _, e := range taken {
				room -= e.Cost
			}
			over += max(0, g.Cost-room)
			taken = append(taken, Grant{Cost: min(g.Cost, room), State: limiter.State{Now: clock}})
		}
	}
	return over
}

// sum is the sum of all that was counted in a row, up to the newest slice. Takes make it higher.
func (g Grant) sum() int64 {
	sums := rowlist.Numbers(g.State.Row.List)
	return sums[len(sums)-1]
}

// back reports whether the clock was stepped back before a segment, by more than the tolerance.
func back(s Segment, clock int64) bool { return s.Began < clock-int64(limiter.ClockTolerance) }

// unseen reports whether what the clock said in a segment can have left no trace: nobody asked, or all
// were refused and found the row as it was. The steps before and after such a segment are one.
func (s Segment) unseen(clock int64) bool {
	return len(s.Grants) == 0 && (s.Refused == 0 || back(s, clock) && s.At > s.Refused)
}

// anchored is the clock as it was when a row was set right after a step back.
func (s Segment) anchored() int64 {
	if len(s.Grants) == 0 {
		return max(s.Began, s.At)
	}
	return s.Began
}

package limiter_test

import (
	"slices"
	"time"

	"github.com/sqlimit/limiter"
)

// slidingOracle is a sliding window as an exact log: it keeps each take, and counts anew each time.
type slidingOracle struct {
	length int64 // of a slice, under the policy that wrote it
	last   int64 // the newest slice, counted from 1970
	at     int64 // the clock of the latest take; 0 if the key is unused
	log    []taking
}

// taking is what one operation took.
type taking struct {
	slice, cost int64
	when        int64 // in true time, which no clock changes
	gone        bool  // the row holds it no longer
}

func (o *slidingOracle) clone() *slidingOracle {
	c := *o
	c.log = slices.Clone(o.log)
	return &c
}

// used is what counts in a slice.
func (o *slidingOracle) used(slice int64) (sum int64) {
	for _, e := range o.log {
		if !e.gone && e.slice > slice-17 && e.slice <= slice {
			sum += e.cost
		}
	}
	return sum
}

// forget drops what a row does not hold: it holds the newest slice and the 16 before it.
func (o *slidingOracle) forget() {
	for i := range o.log {
		o.log[i].gone = o.log[i].gone || o.log[i].slice <= o.last-17
	}
}

// setBack moves all slices back if the clock was stepped back.
func (o *slidingOracle) setBack(now, tolerance int64) {
	if o.at <= now+tolerance {
		return
	}
	by := (o.at - now) / o.length
	most := int64(1 << 60)
	if o.last*o.length <= o.at {
		most = now / o.length
	}
	o.forget()
	for i := range o.log {
		o.log[i].slice = min(most, o.log[i].slice-by)
	}
	o.last, o.at = min(most, o.last-by), now
}

// convert puts what counts into the slices of another length.
func (o *slidingOracle) convert(length, clock int64) {
	if o.length == length {
		return
	}
	newest := clock / length
	if o.last*o.length > clock {
		newest = (o.last*o.length + length - 1) / length
	}
	o.forget()
	swept := max(o.at, (o.last+17)*o.length) <= clock-int64(limiter.SweepGrace)
	for i := range o.log {
		if o.log[i].gone = o.log[i].gone || swept; !o.log[i].gone {
			o.log[i].slice = min(newest, (o.log[i].slice*o.length+o.length-1)/length)
		}
	}
	if o.at > 0 {
		o.last = newest
	}
	o.length = length
}

// slidingPolicy is the policy of an operation, and how late its clock may be.
type slidingPolicy struct {
	limiter.SlidingWindow
	own bool // it has its own clock
}

func (p slidingPolicy) length() int64 { return int64(p.Slice()) }

func (p slidingPolicy) tolerance(o *slidingOracle) int64 {
	if p.own {
		return max(int64(limiter.ClockTolerance), 16*min(o.length, p.length()))
	}
	return int64(limiter.ClockTolerance)
}

// under is the log as p finds it at now.
func (o *slidingOracle) under(p slidingPolicy, now int64) *slidingOracle {
	c := o.clone()
	c.setBack(now, p.tolerance(o))
	c.convert(p.length(), max(now, c.at))
	return c
}

// turn returns the slice that a take of cost goes into, and whether its turn comes within maxWait.
func (o *slidingOracle) turn(p slidingPolicy, cost, maxWait, now int64) (slice int64, passes bool) {
	u := o.under(p, now)
	slice = max(u.last, max(now, u.at)/u.length)
	for u.used(slice)+cost > p.Limit {
		slice++
	}
	return slice, slice*u.length <= max(u.at, now+maxWait)
}

// take takes cost, and returns when the caller may act.
func (o *slidingOracle) take(p slidingPolicy, cost, maxWait, now, when int64) (act int64, passes bool) {
	slice, passes := o.turn(p, cost, maxWait, now)
	if !passes {
		o.refuse(p, now)
		return 0, false
	}
	*o = *o.under(p, now)
	o.at = max(o.at, now)
	delay := max(0, slice*o.length-now)
	if slice*o.length <= o.at {
		delay = min(delay, maxWait)
	}
	o.last = slice
	o.log = append(o.log, taking{slice: slice, cost: cost, when: when + delay})
	return now + delay, true
}

// refuse keeps what a refusal writes: a clock that was set back, and slices that became shorter.
func (o *slidingOracle) refuse(p slidingPolicy, now int64) {
	if o.setBack(now, p.tolerance(o)); o.length > p.length() {
		*o = *o.under(p, now)
		o.at = max(o.at, now)
	}
}

func (o *slidingOracle) charge(p slidingPolicy, cost, now, when int64) (room bool) {
	_, room = o.turn(p, min(cost, p.Limit), 0, now)
	*o = *o.under(p, now)
	o.at = max(o.at, now)
	current := o.at / o.length
	o.last = max(o.last, current)
	o.log = append(o.log, taking{slice: current, cost: cost, when: when})
	return room && cost <= p.Limit
}

func (o *slidingOracle) block(p slidingPolicy, d, now int64) {
	*o = *o.under(p, now)
	o.at = max(o.at, now)
	o.last = max(o.last, (o.at+d)/o.length+1)
}

// refund gives n back: to one slice, or with 0 to the oldest ones that count.
func (o *slidingOracle) refund(n, slice, now int64) bool {
	clock := max(now, o.at)
	if o.at == 0 || o.last > clock/o.length {
		return false
	}
	slices.SortStableFunc(o.log, func(a, b taking) int { return int(a.slice - b.slice) })
	left := n
	for i := range o.log {
		if e := &o.log[i]; !e.gone && e.slice > clock/o.length-17 && (slice == 0 || e.slice == slice) {
			gone := min(left, e.cost)
			e.cost -= gone
			left -= gone
		}
	}
	return left < n
}

// cancel gives back what was booked last.
func (o *slidingOracle) cancel(n, slice, length, act, now int64) {
	if o.at == 0 || o.last != slice || o.length != length || now > act {
		return
	}
	for i := range o.log {
		if e := &o.log[i]; !e.gone && e.slice == slice {
			gone := min(n, e.cost)
			e.cost -= gone
			n -= gone
		}
	}
}

// want is what a limiter tells of the log, except Allowed and RetryAfter.
func (o *slidingOracle) want(p slidingPolicy, now int64) limiter.Result {
	u := o.under(p, now)
	clock := max(now, u.at)
	r := limiter.Result{Limit: p.Limit, Used: u.used(max(u.last, clock/u.length)), Source: limiter.SourceStore, Policy: p.SlidingWindow}
	r.Remaining = max(0, p.Limit-r.Used)
	ahead := u.at > 0 && u.last*u.length > clock
	if ahead {
		r.Used, r.Remaining = p.Limit, 0
		r.ResetAfter = time.Duration(u.last*u.length - now)
	}
	for _, e := range u.log {
		if !e.gone && e.cost > 0 && e.slice > max(u.last, clock/u.length)-17 {
			r.ResetAfter = max(r.ResetAfter, time.Duration((e.slice+17)*u.length-now))
		}
	}
	return r
}

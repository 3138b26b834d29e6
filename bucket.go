package limiter

import (
	"math/bits"
	"time"
)

// TokenBucket is a policy that allows a burst and then a steady rate. A bucket holds up to Capacity
// tokens. A request takes as many tokens as it costs. Refill tokens come back per Interval, evenly
// spread over it. During any time t, requests take at most Capacity + t·Refill/Interval tokens. The
// bucket of a new key is full.
//
// One token takes Interval/Refill to come back, rounded up to the nanosecond, so a bucket never
// refills faster than requested. That time must be at least 1 µs. The time to fill the whole bucket
// must be at most 30 years. The zero TokenBucket is not valid.
type TokenBucket struct {
	Capacity int64         // the most tokens that a bucket holds, at least 1
	Refill   int64         // how many tokens come back per Interval, at least 1
	Interval time.Duration // at most 30 years
}

// PerSecond returns a bucket of n tokens that fills in one second.
func PerSecond(n int64) TokenBucket { return TokenBucket{n, n, time.Second} }

// PerMinute returns a bucket of n tokens that fills in one minute.
func PerMinute(n int64) TokenBucket { return TokenBucket{n, n, time.Minute} }

// PerHour returns a bucket of n tokens that fills in one hour.
func PerHour(n int64) TokenBucket { return TokenBucket{n, n, time.Hour} }

// PerDay returns a bucket of n tokens that fills in 24 hours.
func PerDay(n int64) TokenBucket { return TokenBucket{n, n, 24 * time.Hour} }

// Step returns the time in which one token comes back, rounded up to the nanosecond. It returns 0
// if the policy is not valid.
func (b TokenBucket) Step() time.Duration {
	if b.Refill <= 0 || b.Interval <= 0 {
		return 0
	}
	return (b.Interval-1)/time.Duration(b.Refill) + 1
}

func (b TokenBucket) check() error {
	if b.Capacity < 1 {
		return invalid("TokenBucket.Capacity is %d; it must be at least 1", b.Capacity)
	}
	if b.Refill < 1 {
		return invalid("TokenBucket.Refill is %d; it must be at least 1", b.Refill)
	}
	if err := checkSpan("TokenBucket.Interval", b.Interval, 1); err != nil {
		return err
	}
	step := b.Step()
	if step < minStep {
		return invalid("TokenBucket refills a token every %v; that must be at least %v: lower Refill or raise Interval", step, minStep)
	}
	if hi, lo := bits.Mul64(uint64(b.Capacity), uint64(step)); hi > 0 || lo > uint64(maxSpan) {
		return invalid("TokenBucket takes over 30 years to fill %d tokens at %v each; lower Capacity or raise the rate", b.Capacity, step)
	}
	return nil
}

func (b TokenBucket) limit() int64 { return b.Capacity }

// reach is the time in nanoseconds in which an empty bucket fills.
func (b TokenBucket) reach() int64 { return b.Capacity * int64(b.Step()) }

// late is the time in nanoseconds until a request of this cost can pass. It is 0 or negative if the
// request can pass now.
func (b TokenBucket) late(fullAt, cost, now int64) int64 {
	return max(fullAt, now) - now + (cost-b.Capacity)*int64(b.Step())
}

// refuses reports whether the take op is refused on a row of this policy that is not ahead of the
// clock.
func (b TokenBucket) refuses(op *Op, row *Row, now int64) bool {
	return b.late(row.FullAt, op.Cost, now) > int64(op.MaxWait)
}

func (b TokenBucket) apply(op *Op, row *Row, now int64, s *State) {
	s.Now = now
	switch op.Kind {
	case OpTake:
		b.take(op, row, now, s)
		return
	case OpRefund:
		// The row's own step and reach: it may have been charged under another
		// policy. More than a bucket holds would fill it just the same.
		if row.FullAt > now && row.FullAt <= now+row.Limit*row.Period {
			row.FullAt = max(0, row.FullAt-min(op.Cost, row.Limit)*row.Period)
			s.Took = true
		}
	case OpCancel:
		if row.FullAt == op.Booked.Row.FullAt && row.Period == int64(b.Step()) &&
			row.Limit == b.Capacity && now <= op.Act() {
			row.FullAt -= op.Cost * row.Period
			s.Took = true
		}
	case OpReset:
		s.Took = row.Period != 0
		row.FullAt, row.At = 0, 0
	default: // OpLook
		probe, found := op.probe(), *row
		b.see(&probe, &found, now, s)
		return
	}
	s.Row = *row
}

func (b TokenBucket) take(op *Op, row *Row, now int64, s *State) {
	b.see(op, row, now, s)
	if b.refuses(op, &s.Row, now) {
		return
	}
	s.Row.FullAt = max(s.Row.FullAt, now) + op.Cost*int64(b.Step())
	s.Row.At = now
	s.Took = true
	*row = s.Row
}

// see sets row to what the store keeps if the take op is refused, and s to the state that op finds.
// Every request computes a row of another policy anew, and the row refills by that policy until it
// is written. See DESIGN.md, "A refusal may convert a row of another policy".
func (b TokenBucket) see(op *Op, row *Row, now int64, s *State) {
	anchor(op, row, now)
	s.Row = *row
	if b.carry(&s.Row, now) && b.refuses(op, &s.Row, now) {
		wait, ok := b.waitUnder(*row, op, now)
		if ok {
			s.Wait = wait
		} else {
			s.Row.At = now
			*row = s.Row
		}
	}
}

// anchor corrects a row whose clock was stepped back: what the key owed at its latest take, it owes
// from now on. See DESIGN.md, "A refusal writes a row whose clock was stepped back".
func anchor(op *Op, row *Row, now int64) {
	if row.At > now+op.Tolerance(*row) {
		row.FullAt = max(0, now+row.FullAt-row.At)
		row.At = now
	}
}

// carry converts row to this policy, and reports whether it was a row of another one.
func (b TokenBucket) carry(row *Row, now int64) bool {
	step := int64(b.Step())
	if row.Period == step && row.Limit == b.Capacity {
		return false
	}
	row.FullAt = convert(*row, step, b.reach(), now)
	row.Period, row.Limit = step, b.Capacity
	return true
}

// waitUnder returns how long a refused request must wait if the row stays under the policy that
// wrote it. If that policy's bucket is too small or refills more slowly, ok is false, and the
// refusal writes the converted row. In the other direction it does not, because a refused request
// of a slow policy would slow down a fast one.
func (b TokenBucket) waitUnder(row Row, op *Op, now int64) (wait int64, ok bool) {
	step, was := int64(b.Step()), row.Limit*row.Period
	need := op.Cost*step - int64(op.MaxWait) // of what is left, in this policy's time
	if step < row.Period {
		return 0, false
	}
	if need > 0 { // in the row's own time, rounded up: less than 64 bits, as the row's step is the shorter
		hi, lo := bits.Mul64(uint64(need), uint64(row.Period))
		q, rest := bits.Div64(hi, lo, uint64(step))
		need = int64(q)
		if rest > 0 {
			need++
		}
	}
	return max(0, row.FullAt-now) - was + need, need <= was
}

// convert returns the FullAt that carries a row over to a policy with the given step and reach. If
// two policies alternate, they then admit at most max(capacity) + t·max(rate). If there are
// bookings, their last instant is kept. Otherwise the fraction of tokens that is left is kept,
// rounded down.
func convert(row Row, step, reach, now int64) int64 {
	if row.Period == 0 || row.At == 0 { // never used, or reset
		return 0
	}
	was := row.Limit * row.Period
	debt := max(0, row.FullAt-now)
	if debt > was {
		return row.FullAt - was + reach
	}
	hi, lo := bits.Mul64(uint64(was-debt), uint64(step))
	left := uint64(reach)
	if hi < uint64(row.Period) { // otherwise the quotient exceeds 64 bits, and reach
		q, _ := bits.Div64(hi, lo, uint64(row.Period))
		left = min(left, q)
	}
	return now + reach - int64(left)
}

func (b TokenBucket) delay(s *State) int64 {
	return max(0, s.Row.FullAt-(s.Now+b.reach()))
}

func (b TokenBucket) result(op *Op, s *State, r *Result) {
	after, step := max(0, s.Row.FullAt-s.Now), int64(b.Step())
	*r = Result{
		Allowed:    s.Took,
		Limit:      b.Capacity,
		Remaining:  max(0, (b.Capacity*step-after)/step),
		ResetAfter: time.Duration(ceilTo(after, s.Tick)),
		Source:     SourceStore,
		charged:    s.charge(),
	}
	cost := op.Cost
	if op.Kind == OpLook {
		cost = probeCost
		r.Allowed = b.late(s.Row.FullAt, cost, s.Now) <= 0
	}
	if !r.Allowed {
		wait := b.late(s.Row.FullAt, cost, s.Now) - int64(op.MaxWait)
		if s.Wait > 0 {
			wait = s.Wait
		}
		r.RetryAfter = retryAfter(wait, s.Tick)
	}
}

package limiter

import (
	"fmt"
	"math/bits"
	"time"
)

// The bucket is kept as one instant, as in the generic cell rate algorithm (GCRA, ITU-T I.371):
//
//   - step: GCRA's emission interval, in which one token comes back
//   - FullAt: GCRA's theoretical arrival time, at which the bucket is full again
//   - fill time: Capacity steps, GCRA's burst tolerance plus one step
//   - debt: FullAt minus now, the time that the bucket still takes to fill
//   - deficit: how much of the debt must pass before a request has room

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

// PerSecond returns a bucket of n tokens that fills in one second. [PerMinute] says what can pass.
func PerSecond(n int64) TokenBucket { return TokenBucket{n, n, time.Second} }

// PerMinute returns a bucket of n tokens that fills in one minute. Up to 2n can pass within a minute:
// n at once, and n that refill meanwhile. For at most n in any minute, where n is 2 or more, pass
// n/2.
func PerMinute(n int64) TokenBucket { return TokenBucket{n, n, time.Minute} }

// PerHour returns a bucket of n tokens that fills in one hour. [PerMinute] says what can pass.
func PerHour(n int64) TokenBucket { return TokenBucket{n, n, time.Hour} }

// PerDay returns a bucket of n tokens that fills in 24 hours. [PerMinute] says what can pass.
func PerDay(n int64) TokenBucket { return TokenBucket{n, n, 24 * time.Hour} }

// Step returns the time in which one token comes back, rounded up to the nanosecond. It returns 0
// if the policy is not valid.
func (b TokenBucket) Step() time.Duration {
	if b.Refill <= 0 || b.Interval <= 0 {
		return 0
	}
	return (b.Interval-1)/time.Duration(b.Refill) + 1
}

// String returns the policy as text, such as "5 per 1m0s, burst 5".
func (b TokenBucket) String() string {
	return fmt.Sprintf("%d per %v, burst %d", b.Refill, b.Interval, b.Capacity)
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

// fillTime is the time in nanoseconds in which an empty bucket fills.
func (b TokenBucket) fillTime() int64 { return b.Capacity * int64(b.Step()) }

// deficit is the time in nanoseconds until a request of this cost can pass. It is 0 or negative if the
// request can pass now.
func (b TokenBucket) deficit(fullAt, cost, now int64) int64 {
	return max(fullAt, now) - now + (cost-b.Capacity)*int64(b.Step())
}

// refuses reports whether the take op is refused on a row of this policy that is not ahead of the
// clock.
func (b TokenBucket) refuses(op *Op, row *Row, now int64) bool {
	return b.deficit(row.FullAt, op.needs(), now) > int64(op.MaxWait)
}

func (b TokenBucket) apply(op *Op, row *Row, now int64, s *State) {
	switch op.Kind {
	case OpTake, OpTakeUpTo:
		b.take(op, row, now, s)
		return
	case OpCharge:
		b.charge(op, row, now, s)
	case OpBlock:
		b.block(op, row, now, s)
	case OpRefund:
		// The row's own step and fill time: it may have been charged under another policy. Bookings are
		// outstanding if the row is full later than an empty bucket would be. That counts from the row's
		// clock if it is ahead, because a statement reads its clock before it waits for the row. More than a
		// bucket holds would fill it just the same.
		if row.FullAt > now && row.FullAt <= max(now, row.At)+row.Limit*row.Period {
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
		probe, kept := op.probe(), *row
		b.find(&probe, &kept, now, s)
		if b.refuses(&probe, &s.Row, now) || int64(b.Step()) < row.Period && s.Row.FullAt > now {
			b.refuse(&probe, &kept, now, s)
			*row = kept
		}
		return
	}
	s.Row = *row
}

func (b TokenBucket) take(op *Op, row *Row, now int64, s *State) {
	if b.find(op, row, now, s); b.refuses(op, &s.Row, now) {
		b.refuse(op, row, now, s)
		return
	}
	full, step := max(s.Row.FullAt, now), int64(b.Step())
	cost := op.Cost
	if op.Kind == OpTakeUpTo {
		cost = min(cost, (now+b.fillTime()-full)/step)
		s.Taken = cost
	}
	s.Row.FullAt = full + cost*step
	s.Row.At = now
	s.Took = true
	*row = s.Row
}

// charge takes the cost whatever is left. The debt is bounded, so that no instant overflows.
func (b TokenBucket) charge(op *Op, row *Row, now int64, s *State) {
	anchor(op, row, now)
	b.carry(row, now)
	s.Took = b.deficit(row.FullAt, op.Cost, now) <= 0
	row.FullAt = max(row.FullAt, min(max(row.FullAt, now)+op.Cost*int64(b.Step()), now+maxDebt))
	row.At = now
}

// block makes the bucket empty until the time of the block is over. The instant always changes, so
// that no booking of before can be canceled.
func (b TokenBucket) block(op *Op, row *Row, now int64, s *State) {
	anchor(op, row, now)
	b.carry(row, now)
	s.Took = true
	row.FullAt = max(row.FullAt+1, now+op.Cost+b.fillTime())
	row.At = now
}

// find sets s.Row to the row that op finds, by this policy.
func (b TokenBucket) find(op *Op, row *Row, now int64, s *State) {
	anchor(op, row, now)
	s.Row = *row
	b.carry(&s.Row, now)
}

// refuse sets row to what the store keeps after a refusal. A row of another policy refills by that policy
// until it is written, and s.Wait says how long that takes. See DESIGN.md, "A refusal may convert a row of
// another policy".
func (b TokenBucket) refuse(op *Op, row *Row, now int64, s *State) {
	if b.wrote(row) {
		return
	}
	if wait, ok := b.waitUnder(*row, op, now); ok {
		s.Wait = wait
		return
	}
	s.Row.At = now
	*row = s.Row
}

// anchor corrects a row whose clock was stepped back: what the key owed at its latest take, it owes
// from now on. See DESIGN.md, "A refusal writes a row whose clock was stepped back".
func anchor(op *Op, row *Row, now int64) {
	if row.At > now+op.Tolerance(*row) {
		row.FullAt = max(0, now+row.FullAt-row.At)
		row.At = now
	}
}

// carry converts row to this policy.
func (b TokenBucket) carry(row *Row, now int64) {
	if !b.wrote(row) {
		step := int64(b.Step())
		row.FullAt = convert(*row, step, b.fillTime(), now)
		row.Period, row.Limit = step, b.Capacity
	}
}

// wrote reports whether row is of this policy.
func (b TokenBucket) wrote(row *Row) bool {
	return row.Period == int64(b.Step()) && row.Limit == b.Capacity
}

// waitUnder returns how long a refused request must wait if the row stays under the policy that
// wrote it. If that policy's bucket is too small or refills more slowly, ok is false, and the
// refusal writes the converted row. In the other direction it does not, because a refused request
// of a slow policy would slow down a fast one.
func (b TokenBucket) waitUnder(row Row, op *Op, now int64) (wait int64, ok bool) {
	step, was := int64(b.Step()), row.Limit*row.Period
	need := op.needs()*step - int64(op.MaxWait) // of what is left, in this policy's time
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

// convert returns the FullAt that carries a row over to a policy with the given step and fill time. If
// two policies alternate, they then admit at most max(capacity) + t·max(rate). If there are
// bookings, their last instant is kept. Otherwise the number of tokens that are left is kept, up to
// the new capacity.
func convert(row Row, step, fillTime, now int64) int64 {
	if row.Period == 0 || row.At == 0 || row.Expired(now) { // no row, one that was reset, or one that a sweep may delete
		return 0
	}
	was := row.Limit * row.Period
	debt := max(0, row.FullAt-now)
	if debt > was {
		return min(row.FullAt-was+fillTime, now+maxDebt)
	}
	hi, lo := bits.Mul64(uint64(was-debt), uint64(step))
	left := uint64(fillTime)
	if hi < uint64(row.Period) { // otherwise the quotient exceeds 64 bits, and fillTime
		q, _ := bits.Div64(hi, lo, uint64(row.Period))
		left = min(left, q)
	}
	return now + fillTime - int64(left)
}

func (b TokenBucket) delay(s *State) int64 {
	return max(0, s.Row.FullAt-(s.Now+b.fillTime()))
}

func (b TokenBucket) result(op *Op, s *State, r *Result) {
	after, step := max(0, s.Row.FullAt-s.Now), int64(b.Step())
	*r = Result{
		Allowed:    s.Took,
		Limit:      b.Capacity,
		Remaining:  max(0, (b.Capacity*step-after)/step),
		ResetAfter: time.Duration(ceilTo(after, s.Tick)),
		Source:     SourceStore,
		Policy:     op.Policy,
		Taken:      op.taken(s),
		takenFrom:  op.takenFrom(s),
	}
	if op.Kind != OpCharge && s.Took {
		return
	}
	wait := b.deficit(s.Row.FullAt, op.needs(), s.Now) - int64(op.MaxWait)
	if op.Kind == OpLook {
		r.Allowed = wait <= 0
	}
	r.retryAfter(op, s, wait)
}

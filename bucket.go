package limiter

import (
	"math/bits"
	"time"
)

// TokenBucket is a policy: a bucket holds up to Capacity tokens, a request takes
// as many as it costs, and Refill tokens come back each Interval, evenly (not
// all at its end). Over any stretch of time t at most Capacity + t·Refill/Interval
// tokens are taken. A new key's bucket is full.
//
// One token takes Interval/Refill, rounded up to the nanosecond: never faster
// than asked. That time must be at least 1 µs, and the time to fill the whole
// bucket at most 30 years. The zero TokenBucket is not valid.
type TokenBucket struct {
	Capacity int64
	Refill   int64
	Interval time.Duration
}

// PerSecond returns a bucket of n tokens that fills in a second.
func PerSecond(n int64) TokenBucket { return TokenBucket{n, n, time.Second} }

// PerMinute returns a bucket of n tokens that fills in a minute.
func PerMinute(n int64) TokenBucket { return TokenBucket{n, n, time.Minute} }

// PerHour returns a bucket of n tokens that fills in an hour.
func PerHour(n int64) TokenBucket { return TokenBucket{n, n, time.Hour} }

// PerDay returns a bucket of n tokens that fills in 24 hours.
func PerDay(n int64) TokenBucket { return TokenBucket{n, n, 24 * time.Hour} }

// Step returns the time of one token, rounded up to the nanosecond. It is 0 if
// the policy is not valid.
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

// reach is the time in which an empty bucket fills.
func (b TokenBucket) reach() int64 { return b.Capacity * int64(b.Step()) }

// late is how far the bucket would be overdrawn after cost: at most 0 if the
// request can pass at once, else the time until it can.
func (b TokenBucket) late(fullAt, cost, now int64) int64 {
	return max(fullAt, now) + cost*int64(b.Step()) - (now + b.reach())
}

func (b TokenBucket) apply(op Op, row Row, now int64) (Row, State) {
	switch op.Kind {
	case OpTake:
		return b.take(op, row, now)
	case OpRefund:
		// The row's own step and reach: it may have been charged under another
		// policy. More than a bucket holds would fill it just the same.
		if row.Period == 0 || row.FullAt > now+row.Limit*row.Period {
			return row, State{Row: row, Now: now}
		}
		row.FullAt = max(0, row.FullAt-min(op.Cost, row.Limit)*row.Period)
		return row, State{Row: row, Now: now, Took: true}
	case OpCancel:
		if row.FullAt != op.Booked.Row.FullAt || row.Period != int64(b.Step()) ||
			row.Limit != b.Capacity || now > op.Act() {
			return row, State{Row: row, Now: now}
		}
		row.FullAt -= op.Cost * row.Period
		return row, State{Row: row, Now: now, Took: true}
	case OpReset:
		found := row.Period != 0
		row.FullAt, row.At = 0, 0
		return row, State{Row: row, Now: now, Took: found}
	default: // OpLook
		_, carried := b.carry(op, row, now)
		return row, State{Row: carried, Now: now}
	}
}

func (b TokenBucket) take(op Op, row Row, now int64) (Row, State) {
	repaired, carried := b.carry(op, row, now)
	if b.late(carried.FullAt, op.Cost, now) > int64(op.MaxWait) {
		return repaired, State{Row: carried, Now: now}
	}
	carried.FullAt = max(carried.FullAt, now) + op.Cost*int64(b.Step())
	carried.At = now
	return carried, State{Row: carried, Now: now, Took: true}
}

// carry returns the row as it is to be kept if the request is refused, which
// differs from row only if the clock was stepped back, and the row as this
// policy sees it.
func (b TokenBucket) carry(op Op, row Row, now int64) (repaired, carried Row) {
	if row.At > now+op.Tolerance(row) {
		// The clock was stepped back: the debt that was left at the latest take
		// is what is owed now. A refusal writes this, too: recomputed at every
		// request it would never shrink, and lock the key out for the whole step.
		row.FullAt = max(0, now+row.FullAt-row.At)
		row.At = now
	}
	repaired = row
	step, reach := int64(b.Step()), b.reach()
	if row.Period != step || row.Limit != b.Capacity {
		row.FullAt = convert(row, step, reach, now)
		row.Period, row.Limit = step, b.Capacity
	}
	return repaired, row
}

// convert returns the FullAt that carries a row over to a policy with the given
// step and reach. Alternating between policies then admits no more than
// max(capacity) + t·max(rate). Outstanding bookings carry their last instant
// over; else the tokens left do, as a fraction, rounded down.
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
	if hi < uint64(row.Period) { // else the quotient exceeds 64 bits, and reach
		q, _ := bits.Div64(hi, lo, uint64(row.Period))
		left = min(left, q)
	}
	return now + reach - int64(left)
}

func (b TokenBucket) delay(s State) int64 {
	return max(0, s.Row.FullAt-(s.Now+b.reach()))
}

func (b TokenBucket) result(op Op, s State) Result {
	after := max(0, s.Row.FullAt-s.Now)
	r := Result{
		Allowed:    s.Took,
		Limit:      b.Capacity,
		Remaining:  max(0, (b.reach()-after)/int64(b.Step())),
		ResetAfter: time.Duration(ceilTo(after, s.Tick)),
		Source:     SourceStore,
	}
	cost := op.Cost
	if op.Kind == OpLook {
		cost = 1
		r.Allowed = b.late(s.Row.FullAt, cost, s.Now) <= 0
	}
	if !r.Allowed {
		r.RetryAfter = retryAfter(b.late(s.Row.FullAt, cost, s.Now)-int64(op.MaxWait), s.Tick)
	}
	return r
}

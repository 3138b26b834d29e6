package limiter_test

import (
	"math/big"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
)

// bucketOracle is a token bucket in exact fractions of tokens. It knows nothing
// of instants at which a bucket is full.
type bucketOracle struct {
	policy limiter.TokenBucket // that of the latest take
	used   bool
	tokens *big.Rat // left after the latest take; below 0 while bookings or debt are outstanding
	at     int64    // the clock of the latest take
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// times and over convert between tokens and nanoseconds.
func times(tokens *big.Rat, step time.Duration) *big.Rat {
	return new(big.Rat).Mul(tokens, rat(int64(step)))
}

func over(ns *big.Rat, step time.Duration) *big.Rat {
	return new(big.Rat).Quo(ns, rat(int64(step)))
}

func minRat(a, b *big.Rat) *big.Rat { return slices.MinFunc([]*big.Rat{a, b}, (*big.Rat).Cmp) }

func maxRat(a, b *big.Rat) *big.Rat { return slices.MaxFunc([]*big.Rat{a, b}, (*big.Rat).Cmp) }

// level is the tokens at now under the policy that the bucket was used with.
func (o *bucketOracle) level(now int64) *big.Rat {
	since := over(new(big.Rat).Sub(rat(now), rat(o.at)), o.policy.Step())
	return minRat(since.Add(since, o.tokens), rat(o.policy.Capacity))
}

// setBack takes a clock that was ahead by more than the tolerance for one that
// says now what it said then.
func (o bucketOracle) setBack(now int64) bucketOracle {
	if o.used && o.at > now+int64(limiter.ClockTolerance) {
		o.at = now
	}
	return o
}

// under is the tokens at now under another policy: rounded down to the
// nanosecond, never above its capacity; time by which it is overdrawn stays.
func (o *bucketOracle) under(p limiter.TokenBucket, now int64) *big.Rat {
	if !o.used {
		return rat(p.Capacity)
	}
	level := o.level(now)
	if o.policy.Step() == p.Step() && o.policy.Capacity == p.Capacity {
		return level
	}
	if maxRat(o.full(), rat(o.at)).Cmp(rat(now-int64(limiter.SweepGrace))) <= 0 { // a sweep may have forgotten it
		return rat(p.Capacity)
	}
	if level.Sign() < 0 {
		return owing(p, minRat(owes(p, times(level, o.policy.Step())), rat(longestDebt)))
	}
	ns := times(level, p.Step())
	floor := new(big.Int).Quo(ns.Num(), ns.Denom())
	return minRat(over(new(big.Rat).SetInt(floor), p.Step()), rat(p.Capacity))
}

// longestDebt is how many nanoseconds ahead of now a bucket can be full at most.
const longestDebt = 1 << 60

// owes is the time until a bucket of p is full. The time left is that in which its tokens came back;
// it is below 0 for a debt.
func owes(p limiter.TokenBucket, left *big.Rat) *big.Rat {
	return new(big.Rat).Sub(times(rat(p.Capacity), p.Step()), left)
}

// owing is the level of a bucket that is full after ns.
func owing(p limiter.TokenBucket, ns *big.Rat) *big.Rat {
	return new(big.Rat).Sub(rat(p.Capacity), over(ns, p.Step()))
}

// charge takes n whatever is left, and returns whether there was room for it.
func (o *bucketOracle) charge(p limiter.TokenBucket, n, now int64) bool {
	*o = o.setBack(now)
	level := o.under(p, now)
	before, after := owes(p, times(level, p.Step())), new(big.Rat).Sub(level, rat(n))
	if owes(p, times(after, p.Step())).Cmp(rat(longestDebt)) > 0 {
		after = owing(p, maxRat(before, rat(longestDebt)))
	}
	*o = bucketOracle{policy: p, used: true, tokens: after, at: now}
	return level.Cmp(rat(n)) >= 0
}

// block makes the bucket empty when d has passed. It always changes the level.
func (o *bucketOracle) block(p limiter.TokenBucket, d, now int64) {
	*o = o.setBack(now)
	more := owes(p, times(o.under(p, now), p.Step()))
	more.Add(more, rat(1))
	empty := over(rat(-d), p.Step())
	*o = bucketOracle{policy: p, used: true, tokens: minRat(empty, owing(p, more)), at: now}
}

// takeUpTo takes as many of n as there are, and returns how many.
func (o *bucketOracle) takeUpTo(p limiter.TokenBucket, n, now int64) int64 {
	was := o.setBack(now)
	level := was.under(p, now)
	whole := new(big.Int).Quo(level.Num(), level.Denom())
	if level.Sign() > 0 && whole.Sign() > 0 {
		n = min(n, whole.Int64())
	} else {
		n = 1
	}
	if took, _ := o.take(p, n, 0, now); !took {
		return 0
	}
	return n
}

// take returns whether the take passes, and after how long.
func (o *bucketOracle) take(p limiter.TokenBucket, cost int64, maxWait time.Duration, now int64) (bool, *big.Rat) {
	*o = o.setBack(now)
	left := new(big.Rat).Sub(o.under(p, now), rat(cost))
	delay := new(big.Rat)
	if left.Sign() < 0 {
		delay.Neg(times(left, p.Step()))
	}
	if delay.Cmp(rat(int64(maxWait))) > 0 {
		if o.keeps(p, cost, maxWait) {
			o.convert(p, now)
		}
		return false, delay
	}
	*o = bucketOracle{policy: p, used: true, tokens: left, at: now}
	return true, delay
}

// keeps reports whether a refusal by p converts the bucket: it would refill faster so, or the old one never
// holds enough.
func (o *bucketOracle) keeps(p limiter.TokenBucket, cost int64, maxWait time.Duration) bool {
	most := times(rat(o.policy.Capacity), p.Step())
	need := new(big.Rat).Sub(times(rat(cost), p.Step()), rat(int64(maxWait)))
	return o.policy != p && (p.Step() < o.policy.Step() || need.Cmp(most) > 0)
}

func (o *bucketOracle) convert(p limiter.TokenBucket, now int64) {
	*o = bucketOracle{policy: p, used: true, tokens: o.under(p, now), at: now}
}

// look converts the bucket where a refusal would, or where it would show for too long what the bucket held
// under a policy that refilled more slowly. It returns the level.
func (o *bucketOracle) look(p limiter.TokenBucket, cost, now int64) *big.Rat {
	was := o.setBack(now)
	level := was.under(p, now)
	refused := level.Cmp(rat(cost)) < 0
	faster := o.used && p.Step() < o.policy.Step() && level.Cmp(rat(p.Capacity)) < 0
	if (refused || faster) && was.keeps(p, cost, 0) {
		was.convert(p, now)
		*o = was
	} else if refused {
		*o = was
	}
	return level
}

func (o *bucketOracle) refund(n, now int64) bool {
	if !o.used || o.level(max(now, o.at)).Sign() < 0 || o.level(now).Cmp(rat(o.policy.Capacity)) >= 0 {
		return false
	}
	o.tokens = new(big.Rat).Add(o.tokens, rat(min(n, o.policy.Capacity)))
	return true
}

// full is the instant at which the bucket is full: what identifies a booking.
func (o *bucketOracle) full() *big.Rat {
	missing := new(big.Rat).Sub(rat(o.policy.Capacity), o.tokens)
	return missing.Add(times(missing, o.policy.Step()), rat(o.at))
}

// windowOracle counts in every window there ever was.
type windowOracle struct {
	policy limiter.FixedWindow
	counts map[int64]int64
	last   int64 // the latest window that anything was counted in
}

// take returns whether the take passes, and the window that it goes into.
func (o *windowOracle) take(cost int64, maxWait time.Duration, now int64) (bool, int64) {
	length := int64(o.policy.Window)
	w := max(now/length, o.last)
	if o.policy.CountRejected {
		if w > now/length {
			return false, w
		}
		o.count(w, cost)
		return o.counts[w] <= o.policy.Limit, w
	}
	if o.counts[w]+cost > o.policy.Limit {
		w++
	}
	if w*length-now > int64(maxWait) {
		return false, w
	}
	o.count(w, cost)
	return true, w
}

// full is the count at which a window is blocked: nothing is given back there.
const full = 1 << 62

// count adds n to the count of window w, which is the latest one from now on.
func (o *windowOracle) count(w, n int64) {
	sum := new(big.Int).Add(big.NewInt(o.counts[w]), big.NewInt(n))
	if sum.Cmp(big.NewInt(full)) > 0 {
		sum.SetInt64(full)
	}
	o.counts[w], o.last = sum.Int64(), w
}

// charge counts n whatever is left. It returns whether there was room for it, and the window.
func (o *windowOracle) charge(n, now int64) (bool, int64) {
	current := now / int64(o.policy.Window)
	w := max(current, o.last)
	room := w == current && n <= o.policy.Limit-o.counts[w]
	o.count(w, n)
	return room, w
}

// block fills the window in which d ends. It returns that window.
func (o *windowOracle) block(d, now int64) int64 {
	w := max((now+d)/int64(o.policy.Window), o.last)
	o.count(w, full)
	return w
}

// takeUpTo takes as many of n as the current window has room for, and returns how many.
func (o *windowOracle) takeUpTo(n, now int64) int64 {
	w := now / int64(o.policy.Window)
	if o.last > w {
		return 0
	}
	n = min(n, o.policy.Limit-o.counts[w])
	if n <= 0 {
		return 0
	}
	o.count(w, n)
	return n
}

// refund credits window w, if it is the current one, and returns whether it gave anything
// back.
func (o *windowOracle) refund(n, w, now int64) bool {
	if o.last != w || now/int64(o.policy.Window) != w || o.counts[w] == 0 || o.counts[w] == full {
		return false
	}
	o.counts[w] = max(0, o.counts[w]-n)
	return true
}

// cancel gives back what was booked in window w, until the instant act, and returns whether it did.
func (o *windowOracle) cancel(n, w, act, now int64) bool {
	if o.last != w || now > act || o.counts[w] == full {
		return false
	}
	o.counts[w] = max(0, o.counts[w]-n)
	return true
}

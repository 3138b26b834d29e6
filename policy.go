package limiter

import (
	"fmt"
	"time"
)

// Bounds of a policy. They keep every sum and product of the algorithms inside
// int64, whatever the clock says, so that no request can overflow its way in.
const (
	// minStep is the time of one token at the highest rate: one tick of
	// PostgreSQL's clock. A finer step could not be told apart there.
	minStep = time.Microsecond
	// minWindow is the shortest window: one tick of a millisecond clock.
	minWindow = time.Millisecond
	// maxSpan is the longest window, interval and time to fill a bucket: 30
	// years of 365.25 days, which is below 2^60 ns.
	maxSpan = 262_980 * time.Hour
	// maxLimit is the highest limit of a window: a count, which saturates at
	// 2^62, plus a cost is then still an int64.
	maxLimit = 1 << 60
)

// Policy is how much a key may do: a [TokenBucket] or a [FixedWindow], passed by value. Only this
// package implements the interface, so that every store knows every policy.
type Policy interface {
	// check reports what is wrong with the policy and how to fix it.
	check() error
	// limit is the highest cost that can ever pass.
	limit() int64
}

// The algorithms are not in the interface, but found by the type: what is passed
// to a method of an unknown type has to be on the heap, or be copied each time.

// answer sets r to the caller's Result, given what a store returned for op.
func answer(op *Op, s *State, r *Result) {
	if w, ok := op.Policy.(FixedWindow); ok {
		w.result(op, s, r)
		return
	}
	op.Policy.(TokenBucket).result(op, s, r)
}

// delayOf returns how many nanoseconds after s.Now the turn of a booking comes. The booking was
// made with maxWait.
func delayOf(p Policy, s *State, maxWait time.Duration) int64 {
	if w, ok := p.(FixedWindow); ok {
		return w.delay(s, int64(maxWait))
	}
	return p.(TokenBucket).delay(s)
}

// checkPolicy returns what is wrong with p. It looks at the dynamic type, because a pointer to a
// policy also has the policy's methods.
func checkPolicy(p Policy) error {
	switch p.(type) {
	case TokenBucket, FixedWindow:
		return p.check()
	case nil:
		return invalid("the policy is nil; pass a TokenBucket or a FixedWindow")
	default:
		return invalid("the policy is a %T; pass the value, not a pointer", p)
	}
}

// checkSpan returns an error if a duration of a policy is out of bounds.
func checkSpan(field string, d, shortest time.Duration) error {
	switch {
	case d < shortest:
		return invalid("%s is %v; it must be at least %v", field, d, shortest)
	case d > maxSpan:
		return invalid("%s is %v; it must be at most 30 years (%v)", field, d, maxSpan)
	}
	return nil
}

func countsRejected(p Policy) bool {
	w, ok := p.(FixedWindow)
	return ok && w.CountRejected
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

package limiter

import (
	"errors"
	"fmt"
	"math"
)

// PolicyKind is a kind of limit. The state of each kind is in a table of its own, so a key has one
// state for each kind. The zero PolicyKind is none.
type PolicyKind uint8

const (
	// KindBucket is the kind of a [TokenBucket].
	KindBucket PolicyKind = iota + 1
	// KindWindow is the kind of a [FixedWindow] and of a [CalendarWindow].
	KindWindow
	// KindInFlight is the kind of an [InFlight].
	KindInFlight
	// KindSliding is the kind of a [SlidingWindow].
	KindSliding
)

// KindOf returns the kind of p. It is 0 for nil, for a pointer, and for a type of another package.
func KindOf(p Policy) PolicyKind {
	switch p.(type) {
	case TokenBucket:
		return KindBucket
	case FixedWindow, CalendarWindow:
		return KindWindow
	case InFlight:
		return KindInFlight
	case SlidingWindow:
		return KindSliding
	}
	return 0
}

// Check returns an error that matches [errors.ErrUnsupported] if this package has no such kind of
// operation or policy, or no such operation for the policy. Every Do calls it first.
func (op *Op) Check() error {
	kind := KindOf(op.Policy)
	switch {
	case op.Kind < OpTake || op.Kind > OpExtend:
		return fmt.Errorf("operation %d: %w", op.Kind, errors.ErrUnsupported)
	case kind == 0:
		return fmt.Errorf("policy %T: %w", op.Policy, errors.ErrUnsupported)
	case op.Kind >= OpAcquire != (kind == KindInFlight) && op.Kind != OpLook && op.Kind != OpReset:
		return fmt.Errorf("operation %v of a %T: %w", op.Kind, op.Policy, errors.ErrUnsupported)
	}
	return nil
}

// The functions below are the only ones that switch by the type of a policy. Its algorithms are not
// in the interface: what is passed to a method of an unknown type has to be on the heap, or be copied
// each time.

// apply changes row as op says, and sets s. See [Op.Apply].
func (op *Op) apply(row *Row, now int64, s *State) {
	s.Now = now
	switch p := op.Policy.(type) {
	case TokenBucket:
		p.apply(op, row, now, s)
	case FixedWindow:
		w := p.windows()
		w.apply(op, row, now, s)
	case CalendarWindow:
		w := p.windows()
		w.apply(op, row, now, s)
	case InFlight:
		p.apply(op, row, now, s)
	case SlidingWindow:
		w := p.sliding()
		w.apply(op, row, now, s)
	}
}

// result sets r to the caller's Result, given what a store returned for op.
func (op *Op) result(s *State, r *Result) {
	switch p := op.Policy.(type) {
	case TokenBucket:
		p.result(op, s, r)
	case FixedWindow:
		w := p.windows()
		w.result(op, s, r)
	case CalendarWindow:
		w := p.windows()
		w.result(op, s, r)
	case InFlight:
		p.result(op, s, r)
	case SlidingWindow:
		w := p.sliding()
		w.result(op, s, r)
	}
}

// delayOf returns how many nanoseconds after s.Now the turn of a booking comes. The op is its take or
// its cancel.
func delayOf(op *Op, s *State) int64 {
	switch p := op.Policy.(type) {
	case TokenBucket:
		return p.delay(s)
	case FixedWindow:
		w := p.windows()
		return w.delay(s, int64(op.MaxWait))
	case CalendarWindow:
		w := p.windows()
		return w.delay(s, int64(op.MaxWait))
	case SlidingWindow:
		w := p.sliding()
		return w.delay(s, int64(op.MaxWait))
	}
	return 0
}

// refuses reports whether the take op is refused on a row of its policy that is not ahead of the
// clock.
func (op *Op) refuses(row *Row, now int64) bool {
	switch p := op.Policy.(type) {
	case TokenBucket:
		return p.refuses(op, row, now)
	case FixedWindow:
		w := p.windows()
		return w.refuses(op, row, now)
	case CalendarWindow:
		w := p.windows()
		return w.refuses(op, row, now)
	case SlidingWindow:
		w := p.sliding()
		return w.refuses(op, row, now)
	}
	return false
}

// maxCharge is the highest cost that [Limiter.Charge] accepts.
func maxCharge(p Policy) int64 {
	if b, ok := p.(TokenBucket); ok {
		return int64(maxSpan / b.Step())
	}
	return math.MaxInt64
}

// tolerance is how far, in nanoseconds, a row of the policy may be ahead of an operation's own time.
func (op *Op) tolerance(row Row) int64 {
	switch p := op.Policy.(type) {
	// The shorter window counts, so that a row which a refusal or a look converts is not ahead after that.
	case FixedWindow:
		return max(int64(ClockTolerance), min(row.Period, int64(p.Window)))
	case CalendarWindow:
		w := p.windows()
		_, length := w.at(row.At)
		return max(int64(ClockTolerance), min(row.Period, length))
	case SlidingWindow:
		return max(int64(ClockTolerance), sliceCount*min(row.Period, int64(p.Slice())))
	}
	return int64(ClockTolerance)
}

// CountsRefusals reports whether a refusal of op's policy also counts, so that it writes the row and
// cannot be repeated from memory. Such a policy has no order of turns, and takes whole requests only.
func (op *Op) CountsRefusals() bool {
	w, ok := op.Policy.(FixedWindow)
	return ok && w.CountRejected
}

// checkRate returns an error if p does not belong to a [Limiter].
func checkRate(p Policy) error {
	if KindOf(p) == KindInFlight {
		return invalid("the policy is an InFlight; pass it to NewConcurrency")
	}
	return nil
}

// checkPolicy returns p in the form in which equal policies are equal values, or what is wrong with it. It
// looks at the dynamic type, because a pointer to a policy also has the policy's methods.
func checkPolicy(p Policy) (Policy, error) {
	switch {
	case p == nil:
		return nil, invalid("the policy is nil; pass a TokenBucket, a FixedWindow, a CalendarWindow or a SlidingWindow")
	case KindOf(p) == 0:
		return nil, invalid("the policy is a %T; pass the value, not a pointer", p)
	}
	if w, ok := p.(CalendarWindow); ok && w != w.normal() {
		p = w.normal()
	}
	return p, p.check()
}

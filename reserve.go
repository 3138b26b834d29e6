package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Reservation is the answer to [Limiter.Reserve]. If Allowed, the cost is
// booked, and the caller may act after Delay; it must not act before. If not,
// nothing was booked, Delay is the longest duration there is, and RetryAfter
// says when the same call could succeed. The zero Reservation is a refusal. A
// Reservation is safe for concurrent use.
type Reservation struct {
	Result
	// Delay is the time from the decision until the caller may act.
	Delay time.Duration

	limiter  *Limiter
	booking  booking
	store    Store // that has the booking
	canceled atomic.Bool
}

// booking is what it takes to cancel a take: the operation and its outcome.
type booking struct {
	op    Op
	state State
}

// Reserve books n ahead, in order of arrival and in one round trip, if the turn
// comes within maxWait, which is 0 to [MaxReserve]. On a fixed window it may book
// a later window. A Reserve of 0 books nothing and is always allowed.
//
// The Reservation is never nil. The errors are those of [Limiter.AllowN]; for a
// window with CountRejected, where a place in line has no meaning, [ErrInvalid]
// and [errors.ErrUnsupported].
func (l *Limiter) Reserve(ctx context.Context, key string, n int64, maxWait time.Duration) (*Reservation, error) {
	r := &Reservation{Result: undecided, Delay: math.MaxInt64, limiter: l}
	if err := l.checkReserve(maxWait); err != nil {
		return r, err
	}
	if n == 0 {
		res, err := l.Peek(ctx, key)
		r.Result = res
		if err == nil {
			r.Allowed, r.RetryAfter, r.Delay = true, 0, 0
		}
		return r, err
	}
	var b booking
	err := l.take(ctx, key, n, maxWait, &b, &r.Result)
	switch {
	case err != nil || !r.Allowed:
	case r.Source == SourcePolicy: // let pass without a booking
		r.Delay = 0
	default:
		r.booking, r.store = b, l.store
		if r.Source == SourceLocal {
			r.store = l.fallback
		}
		r.Delay = time.Duration(delayOf(l.policy, &b.state, maxWait))
	}
	return r, err
}

func (l *Limiter) checkReserve(maxWait time.Duration) error {
	if w, ok := l.policy.(FixedWindow); ok && w.CountRejected {
		return fmt.Errorf("%w: limiter %q: a window that counts refusals has no line to wait in; use Allow, or leave CountRejected out: %w",
			ErrInvalid, l.name, errors.ErrUnsupported)
	}
	return checkMaxWait(maxWait)
}

// Cancel gives the booking back if the turn has not come yet and nobody has
// booked behind it; else it does nothing, because what is behind it was promised
// its own instant, and giving this one back would let two act in it. Only the
// first call does anything, whatever its outcome: twice would give back too
// much. It needs a context that has not ended. The error is one of the store's.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r.booking.op.Kind == 0 || r.canceled.Swap(true) {
		return nil
	}
	op := r.booking.op
	op.Kind, op.Booked = OpCancel, r.booking.state
	if r.limiter.clock != nil {
		at, err := checkClock(r.limiter.clock())
		if err != nil {
			return err
		}
		op.At = at
	}
	_, err := r.limiter.giveBack(ctx, r.store, &op)
	return err
}

// cancelTimeout bounds the Cancel of a wait whose own context has ended.
const cancelTimeout = time.Second

// Wait is shorthand for WaitN(ctx, key, 1).
func (l *Limiter) Wait(ctx context.Context, key string) error {
	return l.WaitN(ctx, key, 1)
}

// WaitN books n and sleeps until it may act, in order of arrival: one round trip,
// no polling, nobody overtakes. It returns nil when the caller may act; a wait
// for 0 books nothing and does so at once. It sleeps in real time, whatever
// [WithClock] says.
//
// If the turn lies beyond [WithMaxWait] or the context's deadline, nothing is
// booked, and WaitN returns [ErrExceedsMaxWait] without sleeping. If the context
// ends during the sleep, the booking is canceled as [Reservation.Cancel] does,
// and the error is [ErrCanceled]. The other errors are those of [Limiter.Reserve].
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	if n == 0 {
		var op Op
		if err := l.op(&op, OpLook, key, 0); err != nil {
			return err
		}
		if err := l.checkReserve(0); err != nil {
			return err
		}
		return served(ctx)
	}
	maxWait := l.maxWait
	if deadline, ok := ctx.Deadline(); ok {
		maxWait = min(maxWait, max(0, time.Until(deadline)))
	}
	r, err := l.Reserve(ctx, key, n, maxWait)
	if err != nil {
		return err
	}
	if !r.Allowed {
		wait := maxWait + r.RetryAfter
		if maxWait < l.maxWait && wait <= l.maxWait {
			return fmt.Errorf("%w: limiter %q: the turn comes in %v, after the context's deadline: %w", ErrExceedsMaxWait, l.name, wait, context.DeadlineExceeded)
		}
		return fmt.Errorf("%w: limiter %q: the turn comes in %v, the longest wait is %v", ErrExceedsMaxWait, l.name, wait, l.maxWait)
	}
	if r.Delay == 0 {
		return nil
	}
	timer := time.NewTimer(r.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
	}
	// Best effort: the caller is gone, and learns why it went.
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	_ = r.Cancel(cleanup)
	return served(ctx)
}

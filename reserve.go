package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Reservation is the result of [Limiter.Reserve]. If Allowed is true, the cost is booked, and the
// caller may act after Delay but not before. Otherwise nothing is booked, Delay is the largest
// Duration, and RetryAfter is the wait until the same call can succeed.
//
// The zero Reservation is a refusal. A Reservation is safe for concurrent use.
type Reservation struct {
	Result
	// Delay is the time from the decision until the caller may act.
	Delay time.Duration

	limiter  *Limiter
	booking  booking
	from     Source // of the booking
	canceled atomic.Bool
}

// booking is what a cancel or a release needs: the operation and its state.
type booking struct {
	op    Op
	state State
	// The store, or the fallback, may have carried out the acquire that failed there.
	unknown, unknownLocal bool
}

// Reserve books a request of cost n ahead, in order of arrival, if its turn comes within maxWait.
// The maxWait is 0 to [MaxReserve]. On a window Reserve may book a later window or slice. It is one
// round trip. A Reserve of 0 waits for a debt, block or booking as any other, and books nothing.
//
// The Reservation is never nil. The errors are those of [Limiter.AllowN]. For a window with
// CountRejected, which has no order of turns, the error matches [ErrInvalid] and
// [errors.ErrUnsupported].
func (l *Limiter) Reserve(ctx context.Context, key string, n int64, maxWait time.Duration) (*Reservation, error) {
	r := &Reservation{Result: noDecision, Delay: math.MaxInt64, limiter: l}
	if err := checkMaxWait(maxWait); err != nil {
		return r, err
	}
	var b booking
	if err := l.reservation(ctx, &b.op, key, n, maxWait); err != nil {
		return r, err
	}
	err := l.decide(ctx, &b, &r.Result)
	switch {
	case err != nil || !r.Allowed:
	case r.Source == SourcePolicy: // let pass without a booking
		r.Delay = 0
	default:
		if n > 0 {
			r.booking, r.from = b, r.Source
		}
		r.Delay = time.Duration(delayOf(&b.op, &b.state))
	}
	return r, err
}

// reservation makes op the take of a reservation. A reservation of 0 is a look.
func (l *Limiter) reservation(ctx context.Context, op *Op, key string, n int64, maxWait time.Duration) error {
	kind := OpTake
	if n == 0 {
		kind = OpLook
	}
	if err := l.op(ctx, op, kind, key, n); err != nil {
		return err
	}
	if err := checkNotCounting(op); err != nil {
		return err
	}
	op.MaxWait = maxWait
	return l.checkCost(op)
}

// checkNotCounting returns an error if op's policy is a window with CountRejected, which can only
// allow or refuse whole requests at once.
func checkNotCounting(op *Op) error {
	if !op.CountsRefusals() {
		return nil
	}
	return fmt.Errorf("%w: limiter %q: a window with CountRejected has no Reserve, Wait, AllowUpTo or AllowAll; call AllowN, or leave CountRejected out: %w",
		ErrInvalid, op.Name, errors.ErrUnsupported)
}

// Cancel gives the booking back if its turn has not come yet and nobody has booked a later turn. Otherwise
// it does nothing, because later bookings rely on their own turn. It also does nothing after a
// [Limiter.Block] and, on a bucket, after a [Limiter.Charge]. After a change of the policy it may do nothing.
//
// On a window, all bookings of a window or slice have the same turn. Cancel gives back the count, not the
// time: if the booking was in a later window or slice, requests pass from there on.
//
// Only the first call does anything, whatever its outcome: a second one could give back too much.
// The context must not have ended. The error is the store's.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r.booking.op.Kind == 0 || r.canceled.Swap(true) {
		return nil
	}
	b := booking{op: r.booking.op}
	b.op.Kind, b.op.Booked = OpCancel, r.booking.state
	if r.limiter.clock != nil {
		at, err := checkClock(r.limiter.clock())
		if err != nil {
			return err
		}
		b.op.At = at
	}
	_, err := r.limiter.giveBack(ctx, r.from, &b)
	return err
}

// cancelTimeout bounds the cancel of a wait. The wait's own context may have ended.
const cancelTimeout = time.Second

// Wait is shorthand for WaitN(ctx, key, 1).
func (l *Limiter) Wait(ctx context.Context, key string) error {
	return l.WaitN(ctx, key, 1)
}

// WaitN books a request of cost n and sleeps until its turn, in order of arrival. It is one round
// trip and does not poll. It returns nil when the caller may act. A wait for 0 books nothing, as in
// [Limiter.Reserve]. WaitN sleeps in real time, even with [WithClock].
//
// If the turn comes after [WithMaxWait] or the context's deadline, WaitN returns [ErrExceedsMaxWait]
// without sleeping. It books nothing, or cancels what it booked. If the context ends during the sleep,
// WaitN cancels the booking as [Reservation.Cancel] does, and returns [ErrCanceled]. The other errors
// are those of [Limiter.Reserve].
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
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
			return l.afterDeadline(wait)
		}
		return fmt.Errorf("%w: limiter %q: the turn comes in %v, the longest wait is %v", ErrExceedsMaxWait, l.name, wait, l.maxWait)
	}
	if r.Delay == 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && r.Delay > time.Until(deadline) { // the booking took a part of the time
		r.abandon(ctx)
		return l.afterDeadline(r.Delay)
	}
	timer := time.NewTimer(r.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
	}
	r.abandon(ctx)
	return checkContext(ctx)
}

// abandon cancels the booking of a wait that ends early. An error changes nothing for the caller.
func (r *Reservation) abandon(ctx context.Context) {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	_ = r.Cancel(cleanup)
}

// afterDeadline is the error of a wait whose turn comes after the deadline.
func (l *Limiter) afterDeadline(wait time.Duration) error {
	return fmt.Errorf("%w: limiter %q: the turn comes in %v, after the context's deadline: %w", ErrExceedsMaxWait, l.name, wait, context.DeadlineExceeded)
}

package limiter

import (
	"context"
	"fmt"
)

// failurePolicy is what the Limiter decides when the store fails.
type failurePolicy uint8

const (
	failClosed failurePolicy = iota
	failOpen
	failLocal
)

// FailClosed tells the [Limiter] to refuse requests when the store fails. The Result is a refusal
// with [SourcePolicy] and comes with the error. This is the default. If several failure policies
// are passed, the last one counts.
func FailClosed() Option {
	return func(o *options) error {
		o.fail, o.fallback = failClosed, nil
		return nil
	}
}

// FailOpen tells the [Limiter] to let requests pass when the store fails. The Result is Allowed
// with [SourcePolicy], and the error is nil. Nothing is booked, unless the outcome is unknown: then
// nobody can cancel the booking. Only the observer of [WithObserver] sees the cause.
//
// FailOpen applies only to errors for which [StoreFailed] returns true: those of the classes
// [ErrNotApplied] and [ErrOutcomeUnknown]. An invalid argument, a misconfigured store, a busy key
// ([ErrKeyBusy]) and a context that has ended or soon ends stay errors, and let no request pass. Errors of
// [Limiter.Refund], [Limiter.RefundOf], [Limiter.Reset] and [Reservation.Cancel] also stay errors.
//
// While a transaction holds the key's row for 4/5 of the time limit or longer, requests with this key
// pass, unless they get [ErrKeyBusy]. If transactions of yours charge keys, use [FailClosed] for their limiters.
//
// FailOpen has no effect on a store whose decisions may be rolled back, such as one on the caller's
// transaction: see [Provisional].
func FailOpen() Option {
	return func(o *options) error {
		o.fail, o.fallback = failOpen, nil
		return nil
	}
}

// FailLocal tells the [Limiter] to ask the fallback when its store fails. The fallback is usually
// memory.New(). The Result is the fallback's, with [SourceLocal], and the error is nil. Only the
// observer of [WithObserver] sees the cause. FailLocal applies to the same errors and stores as
// [FailOpen].
//
// The fallback has its own state and applies the Limiter's policy. Every key starts unused. While
// the store fails, each fallback therefore admits up to what the policy admits, in addition to what
// the store admits before and after. Give all Limiters of one name in a process the same fallback.
// A request whose outcome the store left unknown may be charged in both.
//
// [Reservation.Cancel] and [Limiter.RefundOf] go to the store that booked or charged, which may be
// the fallback. [Limiter.Refund] and [Limiter.Reset] go only to the Limiter's store and fail with
// it. If the fallback also fails, the request is refused, and the error matches both errors. The
// fallback must not be nil.
func FailLocal(fallback Store) Option {
	return func(o *options) error {
		if isNil(fallback) {
			return invalid("the fallback of FailLocal is nil (%T); pass memory.New(), or use FailClosed or FailOpen", fallback)
		}
		o.fail, o.fallback = failLocal, fallback
		return nil
	}
}

// failed applies the failure policy to b.op, for which the store failed with cause. It returns the
// errors for the caller and for the observer. If the fallback also failed, both errors have both
// causes.
func (l *Limiter) failed(ctx context.Context, b *booking, res *Result, cause error) (told, seen error) {
	*res = noDecision
	switch {
	case l.fail == failClosed || !StoreFailed(cause) || provisional(l.store):
		return cause, cause
	case l.fail == failOpen:
		if res.Allowed = true; b.op.Kind != OpLook {
			res.Taken = b.op.Cost
		}
		return nil, cause
	}
	err := checkContext(ctx)
	if err == nil {
		err = l.doOn(ctx, l.fallback, &b.op, &b.state)
	}
	if err != nil {
		b.unknownLocal = l.withdraw(ctx, SourceLocal, b, err)
		both := fmt.Errorf("%w; and the fallback: %w", cause, err)
		return both, both
	}
	b.op.result(&b.state, res)
	res.Source = SourceLocal
	return nil, cause
}

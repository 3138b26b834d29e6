package limiter

import (
	"context"
	"fmt"
)

// failurePolicy is what is answered when the store fails.
type failurePolicy uint8

const (
	failClosed failurePolicy = iota
	failOpen
	failLocal
)

// FailClosed tells the [Limiter] to refuse when the store fails: the Result is a
// refusal with [SourcePolicy], and comes with the error. This is the default; of
// several failure policies the last counts.
func FailClosed() Option {
	return func(o *options) error {
		o.fail, o.fallback = failClosed, nil
		return nil
	}
}

// FailOpen tells the [Limiter] to let requests pass when the store fails. The Result is
// Allowed with [SourcePolicy], nothing is booked, and there is no error: only the observer
// of [WithObserver] gets the cause.
//
// It answers only for errors that [StoreFailed] reports: of the classes [ErrNotApplied]
// and [ErrOutcomeUnknown]. An invalid argument, a misconfigured store, a busy key
// ([ErrKeyBusy]) and a context that has ended stay errors, because nobody must get in by
// them. Errors of [Limiter.Refund], [Limiter.RefundOf], [Limiter.Reset] and
// [Reservation.Cancel] stay errors as well.
//
// It never answers on a store whose answers may be rolled back, such as one on a
// transaction of the caller's: see [Provisional].
func FailOpen() Option {
	return func(o *options) error {
		o.fail, o.fallback = failOpen, nil
		return nil
	}
}

// FailLocal tells the [Limiter] to ask another store when its own fails, usually
// memory.New(). The Result is the fallback's, with [SourceLocal], and there is no error:
// only the observer of [WithObserver] gets the cause. It asks the fallback for the same
// errors and on the same stores as [FailOpen] lets pass.
//
// The fallback keeps a state of its own, by the Limiter's own policy, and starts with
// every key unused. While the store is down, each fallback therefore admits at most what
// the policy admits, in addition to what the store admits before and after. Give all
// Limiters of one name in a process the same fallback. A request whose outcome the store
// left unknown may be charged in both.
//
// [Reservation.Cancel] and [Limiter.RefundOf] go to the store that booked or charged, which
// may be the fallback. [Limiter.Refund] and [Limiter.Reset] go to the Limiter's store alone
// and fail with it. If the fallback also fails, the request is refused, and the error
// matches the errors of both. The fallback must not be nil.
func FailLocal(fallback Store) Option {
	return func(o *options) error {
		if isNil(fallback) {
			return invalid("the fallback of FailLocal is nil (%T); pass memory.New(), or use FailClosed or FailOpen", fallback)
		}
		o.fail, o.fallback = failLocal, fallback
		return nil
	}
}

// failed applies the failure policy to b.op, at which the store failed with cause. It
// returns the errors for the caller and for the observer: both causes if the fallback
// also failed.
func (l *Limiter) failed(ctx context.Context, b *booking, res *Result, cause error) (told, seen error) {
	*res = undecided
	switch {
	case l.fail == failClosed || !StoreFailed(cause) || provisional(l.store):
		return cause, cause
	case l.fail == failOpen:
		res.Allowed = true
		return nil, cause
	}
	if err := l.doOn(ctx, l.fallback, &b.op, &b.state); err != nil {
		both := fmt.Errorf("%w; and the fallback: %w", cause, err)
		return both, both
	}
	answer(&b.op, &b.state, res)
	res.Source = SourceLocal
	return nil, cause
}

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

// FailOpen tells the [Limiter] to let requests pass when the store fails: the
// Result is Allowed with [SourcePolicy], nothing is booked, and there is no error: the
// cause goes to the observer of [WithObserver] alone.
// That is for the classes [ErrNotApplied] and [ErrOutcomeUnknown]. An invalid
// argument, a misconfigured store and a context that has ended stay errors: nobody
// must get in by them. So do errors of [Limiter.Refund], [Limiter.Reset] and
// [Reservation.Cancel], which let nobody in.
func FailOpen() Option {
	return func(o *options) error {
		o.fail, o.fallback = failOpen, nil
		return nil
	}
}

// FailLocal tells the [Limiter] to ask another store when its own fails, as a rule
// memory.New(): the Result is the fallback's, with [SourceLocal], and there is no
// error: the cause goes to the observer of [WithObserver] alone. The classes of
// errors for which it does that are those of [FailOpen].
//
// The fallback keeps a state of its own, by the Limiter's own policy, and begins with
// every key unused. So while the store is down each fallback admits at most what the
// policy admits, beside what the store admitted before and after: give all Limiters of
// one name in a process the same fallback. A request whose outcome the store left unknown may be charged in both.
//
// A reservation that the fallback booked is canceled there. [Limiter.Refund] and
// [Limiter.Reset] go to the Limiter's store alone, and fail with it: give back only
// what came with [SourceStore]. If the fallback fails, too, the request is refused, and
// the error matches what either of the two failed with. The fallback must not be nil.
func FailLocal(fallback Store) Option {
	return func(o *options) error {
		if fallback == nil {
			return invalid("the fallback of FailLocal is nil; pass memory.New(), or take FailClosed or FailOpen")
		}
		o.fail, o.fallback = failLocal, fallback
		return nil
	}
}

// failed is the answer of the failure policy to b.op, at which the store failed with
// cause. It returns what the caller is told, and what the observer is: the causes of
// both, if the fallback failed, too.
func (l *Limiter) failed(ctx context.Context, b *booking, res *Result, cause error) (told, seen error) {
	*res = undecided
	switch {
	case l.fail == failClosed || !StoreFailed(cause):
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

package limiter

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Lease is the place of one request: see [Concurrency]. The zero Lease holds nothing. A Lease is safe for
// concurrent use, and must not be copied.
type Lease struct {
	// Result is the decision. Allowed reports that a place was taken, or that [FailOpen] let the request
	// pass. Used is the number of places that are held, with this one. RetryAfter is the time until a place
	// is free by itself; it is free earlier if somebody releases one. ResetAfter is the time until the last
	// lease ends.
	Result
	// Length is how long the lease lasts. To know safely when it ends, count Length from an instant before
	// the call: the store starts counting later. Length is 0 if no place is held.
	Length time.Duration

	limiter  *Limiter
	op       Op          // the acquire
	store    atomic.Bool // the store may have the lease
	fallback atomic.Bool // the fallback may have it
	released atomic.Bool // Release was called
}

// releaseTimeout bounds the release that follows an acquire of unknown outcome.
const releaseTimeout = time.Second

// begin notes where an acquire took a place.
func (l *Lease) begin(b *booking) {
	l.op = b.op
	took := l.Allowed && l.Source != SourcePolicy
	l.store.Store(took && l.Source == SourceStore || b.unknown)
	l.fallback.Store(took && l.Source == SourceLocal || b.unknownLocal)
	if took {
		l.Length = b.op.Hold
	}
}

// Release frees the place. It may be called on every Lease, also after a refusal or an error, any number
// of times. Once it has succeeded, or if nothing can be held, it does no I/O and returns nil. After an
// acquire of unknown outcome, a Release that finds no place returns nil, but the next one asks the store
// again: the release may have overtaken the acquire. Release never frees the place of another request,
// however late or often it is called.
//
// Pass a context that has not ended, such as [context.WithoutCancel] of the request's. After an error,
// including [ErrOutcomeUnknown], Release may be called again. Without a successful release, the place is
// free when the lease ends. The errors are the store's; no failure policy applies.
func (l *Lease) Release(ctx context.Context) error {
	l.released.Store(true)
	return cmp.Or(
		l.releaseFrom(ctx, &l.store, SourceStore),
		l.releaseFrom(ctx, &l.fallback, SourceLocal),
	)
}

// releaseFrom releases the place in the store or in the fallback, if one may be held there.
func (l *Lease) releaseFrom(ctx context.Context, held *atomic.Bool, from Source) error {
	if !held.Load() {
		return nil
	}
	found, err := l.carryOut(ctx, OpRelease, l.op.Hold, from)
	if certain := l.Source == from; err == nil && (found || certain) {
		held.Store(false)
	}
	return err
}

// Extend holds the place for d from now on, even if that is shorter than what is left. If d is not 1 ms to
// [MaxHold], the error matches [ErrInvalid]. Extend returns false if the lease has ended: then another
// request may have the place. Without I/O it returns false after a refusal or a call of Release, and true
// if [FailOpen] let the request pass. Other errors are the store's; no failure policy applies.
//
// Extend changes no field of the Lease.
func (l *Lease) Extend(ctx context.Context, d time.Duration) (bool, error) {
	if err := checkHold("the time of the lease", d); err != nil {
		return false, err
	}
	if !l.Allowed || l.released.Load() || l.limiter == nil {
		return false, nil
	}
	if l.Source == SourcePolicy {
		return true, nil
	}
	return l.carryOut(ctx, OpExtend, d, l.Source)
}

// carryOut sends an operation on the lease, and reports whether the store or the fallback has the lease.
func (l *Lease) carryOut(ctx context.Context, kind OpKind, hold time.Duration, from Source) (bool, error) {
	b := booking{op: l.op}
	b.op.Kind, b.op.Hold = kind, hold
	if l.limiter.clock != nil {
		at, err := checkClock(l.limiter.clock())
		if err != nil {
			return false, err
		}
		b.op.At = at
	}
	_, err := l.limiter.carryOut(ctx, from, &b)
	return b.state.Took, err
}

// withdraw reports whether b is an acquire that may have taken a place in the store or in the fallback,
// although it failed with cause. If so, it releases that place, once. The release may get there before the
// acquire and find nothing. The place then stays taken until the lease ends, or until a [Lease.Release] that
// gets there after the acquire.
func (l *Limiter) withdraw(ctx context.Context, from Source, b *booking, cause error) (unknown bool) {
	if b.op.Kind != OpAcquire || !errors.Is(cause, ErrOutcomeUnknown) {
		return false
	}
	release := booking{op: b.op}
	release.op.Kind, release.op.Timeout = OpRelease, min(releaseTimeout, l.timeout)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), release.op.Timeout)
	defer cancel()
	_, _ = l.carryOut(ctx, from, &release) // the caller gets the cause
	return true
}

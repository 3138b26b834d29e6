package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

const (
	// retries is how often an operation that was not applied is retried.
	retries = 2
	// The pause before a retry is random, from leastPause to mostPause, so that operations that
	// failed together do not collide again.
	leastPause = 5 * time.Millisecond
	mostPause  = 25 * time.Millisecond
	// A tenth of a store's operations may be retried, and retryBurst at the same time. A database
	// at which everything fails must not get a multiple of the load.
	retryShare = 10
	retryBurst = 10
)

// retrier retries operations that were certainly not applied. The zero retrier retries none. It is
// safe for concurrent use.
type retrier struct {
	// isRetryable reports whether an operation that failed with this error may succeed a moment
	// later. If isRetryable is nil, none may.
	isRetryable func(error) bool
	// wasNotSent reports whether a retryable error means that the database did not get the
	// operation, because it had ended the session. Such a retry costs the database nothing and needs
	// no pause. It is not one of the two: each connection of the pool may be such a session, and
	// those that the pool's health check holds escape [Store.closeIdle]. If wasNotSent is nil, there
	// are no such errors.
	wasNotSent func(error) bool
	conns      int // size of the pool

	counted *atomic.Int64 // how many operations were sent once more; nil if nobody wants to know
	spent   atomic.Int64  // in operations, retryShare for each one that was sent once more
}

// resend calls send again after it returned out and err, where that may help, while ctx, the operation's
// context, leaves time. It never does so after an error that leaves the outcome unknown.
func resend[T any](ctx context.Context, r *retrier, out T, err error, send func(context.Context) (T, error)) (T, error) {
	if r.spent.Load() > 0 {
		r.spent.Add(-1)
	}
	for counted, unsent := 0, 0; err != nil && r.mayRetry(err); {
		var inTime bool
		switch notSent := r.wasNotSent != nil && r.wasNotSent(err); {
		case notSent && unsent < r.conns:
			unsent++
			inTime = ctx.Err() == nil
		case !notSent && counted < retries && r.spend():
			counted++
			inTime = pause(ctx, leastPause+rand.N(mostPause-leastPause))
		default:
			return out, err
		}
		if gone := opcontext.CallerErr(ctx); gone != nil { // the caller must not be charged
			return out, fmt.Errorf("%w: %w: %w", limiter.ErrCanceled, gone, err)
		}
		if !inTime {
			break
		}
		if r.counted != nil {
			r.counted.Add(1)
		}
		out, err = send(ctx)
	}
	return out, err
}

// mayRetry reports whether an operation may succeed a moment later, and was certainly not applied.
func (r *retrier) mayRetry(err error) bool {
	return r.isRetryable != nil && errors.Is(err, limiter.ErrNotApplied) && !errors.Is(err, limiter.ErrOutcomeUnknown) && r.isRetryable(err)
}

// spend takes one retry from the budget, and reports whether there was one.
func (r *retrier) spend() bool {
	for {
		spent := r.spent.Load()
		if spent > retryShare*(retryBurst-1) {
			return false
		}
		if r.spent.CompareAndSwap(spent, spent+retryShare) {
			return true
		}
	}
}

// pause waits for d, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

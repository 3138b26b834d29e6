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
	// maxRetries is how often an operation that was not applied is retried.
	maxRetries = 2
	// The pause before a retry is random, from leastPause to mostPause, so that operations that
	// failed together do not collide again.
	leastPause = 5 * time.Millisecond
	mostPause  = 25 * time.Millisecond
	// A tenth of a store's operations may be retried, and retryBurst at the same time. A database
	// at which everything fails must not get a multiple of the load.
	retryShare = 10
	retryBurst = 10
)

// retrier retries operations that were certainly not applied. It is safe for concurrent use.
type retrier struct {
	// conns is how often an operation is sent again because the server had ended the session and did not get
	// it: the size of the pool, because each connection may be such a session. Those that the pool's health
	// check holds escape [Store.closeIdle]. Such a retry costs the database nothing and needs no pause.
	conns   int
	counted *atomic.Int64 // how many operations were sent once more
	spent   atomic.Int64  // in operations, retryShare for each one that was sent once more
}

// retry calls carryOut again after it returned out and err, where that may help, while ctx, the operation's
// context, leaves time. It never does so after an error that leaves the outcome unknown.
func retry[T any](ctx context.Context, r *retrier, out T, err error, carryOut func(context.Context) (T, error)) (T, error) {
	if r.spent.Load() > 0 {
		r.spent.Add(-1)
	}
	for tries, unsent := 0, 0; err != nil && mayRetry(err); {
		var inTime bool
		switch notSent := sqlState(err) == idleSession; {
		case notSent && unsent < r.conns:
			unsent++
			inTime = ctx.Err() == nil
		case !notSent && tries < maxRetries && r.spend():
			tries++
			inTime = pause(ctx, leastPause+rand.N(mostPause-leastPause))
		default:
			return out, err
		}
		if gone := opcontext.CallerErr(ctx); gone != nil { // the caller must not pay
			return out, fmt.Errorf("%w: %w: %v", limiter.ErrCanceled, gone, err) //nolint:errorlint // it has another class
		}
		if !inTime {
			break
		}
		r.counted.Add(1)
		out, err = carryOut(ctx)
	}
	return out, err
}

// mayRetry reports whether an operation may succeed a moment later, and was certainly not applied.
func mayRetry(err error) bool {
	return errors.Is(err, limiter.ErrNotApplied) && !errors.Is(err, limiter.ErrOutcomeUnknown) && isRetryable(err)
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

package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
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

// Retries retries operations that were certainly not applied. The zero Retries retries none. It is
// safe for concurrent use.
type Retries struct {
	// Again reports whether an operation that failed with this error may succeed a moment later. If
	// Again is nil, none may.
	Again func(error) bool
	// Unsent reports whether an error, for which Again returns true, means that the database did
	// not get the operation. Such a retry costs the database nothing, is not counted and needs no
	// pause. If Unsent is nil, there are no such errors.
	Unsent func(error) bool

	spent atomic.Int64 // in operations, retryShare for each one that was sent once more
}

// Do calls send, and calls it again where that may help, while ctx, the operation's [Limit], leaves
// time. It never does so after an error that leaves the outcome unknown.
func (r *Retries) Do(ctx context.Context, send func(ctx context.Context) (limiter.State, error)) (limiter.State, error) {
	if r.spent.Load() > 0 {
		r.spent.Add(-1)
	}
	s, err := send(ctx)
	for n := 0; n < retries && err != nil && r.again(err); n++ {
		inTime := r.unsent(err) && ctx.Err() == nil || pause(ctx, leastPause+rand.N(mostPause-leastPause))
		if gone := left(ctx); gone != nil { // who left must not be charged
			return limiter.State{}, fmt.Errorf("%w: %w: %w", limiter.ErrCanceled, gone, err)
		}
		if !inTime {
			break
		}
		s, err = send(ctx)
	}
	return s, err
}

// again reports whether to retry an operation.
func (r *Retries) again(err error) bool {
	if r.Again == nil || !errors.Is(err, limiter.ErrNotApplied) || errors.Is(err, limiter.ErrOutcomeUnknown) || !r.Again(err) {
		return false
	}
	if r.unsent(err) {
		return true
	}
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

func (r *Retries) unsent(err error) bool { return r.Unsent != nil && r.Unsent(err) }

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

// left returns why the caller has left, or nil. A [Limit] may continue for a while after that.
func left(ctx context.Context) error {
	if l, ok := ctx.(*Limit); ok {
		return l.Context.Err()
	}
	return ctx.Err()
}

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
	// retries is how often an operation that was not applied is sent once more.
	retries = 2
	// Before that it waits for leastPause and up to as much again as is left to mostPause,
	// so that those who failed together do not come together again.
	leastPause = 5 * time.Millisecond
	mostPause  = 25 * time.Millisecond
	// Of a store's operations a tenth may be sent once more, and retryBurst at once: a
	// database that fails at all of them is not to get more of them for that.
	retryShare = 10
	retryBurst = 10
)

// Retries sends operations once more that were certainly not applied. The zero Retries
// sends none. It is safe for concurrent use.
type Retries struct {
	// Again reports whether an operation that failed so may succeed if it is sent once
	// more, a moment later. nil is never.
	Again func(error) bool
	// Unsent reports whether an error, for which Again reports true, means that the database
	// did not get the operation: a retry then costs it nothing, is not counted, and needs no
	// pause. nil is never.
	Unsent func(error) bool

	spent atomic.Int64 // in operations, retryShare for each one that was sent once more
}

// Do calls send, and again where that may help while ctx, the operation's [Limit], leaves
// time for it. It never does so after an error that leaves the outcome unknown.
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

// again reports whether an operation is to be sent once more.
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

// pause waits for d, and reports whether ctx is still there after it.
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

// left returns why the caller is not there any more, if only for a [Limit] that goes on
// for a while after that, and nil if he is.
func left(ctx context.Context) error {
	if l, ok := ctx.(*Limit); ok {
		return l.Context.Err()
	}
	return ctx.Err()
}

package sqlstore

import (
	"context"
	"time"
)

// Await waits until it can receive from done, or ctx has ended, and reports whether
// ctx has. For a [Limit] that costs a timer, and no context.
func Await(ctx context.Context, done <-chan struct{}) (ended bool) {
	select {
	case <-done:
		return false
	default:
	}
	l, ok := ctx.(*Limit)
	if !ok {
		select {
		case <-done:
			return false
		case <-ctx.Done():
			return true
		}
	}
	left, ended := l.expire()
	if ended {
		return true
	}
	// Connected may bring the end nearer, and then to at least the timeout from its call: who
	// looks as often is in time, and nobody has to be woken up for it.
	timer := time.NewTimer(min(left, l.timeout))
	defer timer.Stop()
	for !ended {
		select {
		case <-done:
			return false
		case <-l.Context.Done():
			return true
		case <-timer.C:
			if left, ended = l.expire(); !ended {
				timer.Reset(min(left, l.timeout))
			}
		}
	}
	return true
}

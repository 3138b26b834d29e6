package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// DialLimit is how long an operation waits for a connection that is being
	// made: TCP, TLS and authentication are a dozen round trips, and a database that
	// sleeps takes a second or two to wake up.
	DialLimit = 3 * time.Second
	// headroom is what an operation leaves of the time that its context has, for
	// the caller to answer in.
	headroom = 100 * time.Millisecond
	// near is how far off a deadline must be for a store that does not keep it to
	// have failed. A nearer one may be a client's choice, and is then not to decide
	// that the client gets what it would not get otherwise.
	near = 2 * headroom
)

// Limit is the context of one operation on a database that others use as well. It
// ends when the operation has used up its time: [limiter.Op.Timeout], from when it
// has a connection.
type Limit struct {
	context.Context // the caller's, which can end earlier
	cancel          context.CancelCauseFunc
	timeout         time.Duration
	end             time.Time // of all there is; zero if there is no such time
	short           bool      // the deadline was near from the beginning
	dialing         func() bool

	mu        sync.Mutex
	timer     *time.Timer
	due       time.Time
	connected bool
	waited    bool
	stopped   bool
}

type limitKey struct{}

// The causes of a context that a Limit has ended: for the operation's own time, and
// for that of a caller who left it next to none.
var (
	errLimit = fmt.Errorf("no answer in the time that the operation had: %w", context.DeadlineExceeded)
	errShort = fmt.Errorf("too little time before the caller's deadline: %w", context.DeadlineExceeded)
)

// WithLimit returns a context that ends timeout after [Connected] was called on it,
// or on the way there: when timeout is over, or while dialing reports that a
// connection is being made, after 3 s. It ends some time before ctx does, so that
// the caller can still use the answer. The caller must call stop. If timeout is 0 it
// returns ctx.
func WithLimit(ctx context.Context, timeout time.Duration, dialing func() bool) (limited context.Context, stop func()) {
	if timeout <= 0 {
		return ctx, func() {}
	}
	inner, cancel := context.WithCancelCause(ctx)
	l := &Limit{Context: inner, cancel: cancel, timeout: timeout, dialing: dialing}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		l.end = deadline.Add(-min(headroom, left/2))
		l.short = left < near
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.within(timeout)
	l.due = time.Now().Add(d)
	l.timer = time.AfterFunc(d, l.expire)
	return l, l.stop
}

// Connected tells the Limit that ctx is, if it is one, that there is a connection
// now. Only the first call does anything.
func Connected(ctx context.Context) {
	l, ok := ctx.Value(limitKey{}).(*Limit)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.connected && !l.stopped {
		l.connected = true
		l.again(l.timeout)
	}
}

// Limited reports whether a time limit ends ctx.
func Limited(ctx context.Context) bool {
	return ctx.Value(limitKey{}) != nil
}

// Ended returns the error of a context that the caller ended, if only by a deadline
// too near for a store to keep, and nil if it has not ended or its time limit ended it.
func Ended(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errLimit):
		return nil
	case errors.Is(cause, errShort):
		return cause
	}
	return ctx.Err()
}

// Value returns the Limit itself, or what the caller's context holds.
func (l *Limit) Value(key any) any {
	if key == (limitKey{}) {
		return l
	}
	return l.Context.Value(key)
}

// within returns d, or what is left if that is less.
func (l *Limit) within(d time.Duration) time.Duration {
	if l.end.IsZero() {
		return d
	}
	return max(0, min(d, time.Until(l.end)))
}

// again starts the timer anew.
func (l *Limit) again(d time.Duration) {
	d = l.within(d)
	l.due = time.Now().Add(d)
	l.timer.Reset(d)
}

// expire ends the context, unless a connection is being made.
func (l *Limit) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped || time.Now().Before(l.due) { // started anew after it had fired
		return
	}
	more := DialLimit - l.timeout
	if !l.connected && !l.waited && more > 0 && l.dialing != nil && l.dialing() && l.within(more) > 0 {
		l.waited = true
		l.again(more)
		return
	}
	if l.short && !time.Now().Before(l.end) {
		l.cancel(errShort)
		return
	}
	l.cancel(errLimit)
}

func (l *Limit) stop() {
	l.mu.Lock()
	l.stopped = true
	l.timer.Stop()
	l.mu.Unlock()
	l.cancel(nil)
}

package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// DialLimit is how long an operation waits for a connection that is being made. TCP, TLS and
	// authentication take a dozen round trips, and a sleeping database takes a second or two to
	// wake up.
	DialLimit = 3 * time.Second
	// headroom is how long before the context's deadline an operation ends, so that the caller can
	// still answer.
	headroom = 100 * time.Millisecond
	// lingering is how long a statement may continue after its caller has left. Cutting it off
	// costs the connection, and most statements are about to end.
	lingering = 100 * time.Millisecond
)

// Limit is the context of one operation. It ends when the operation has used up its time:
// [limiter.Op.Timeout], counted from when it has a connection.
//
// It ends before the caller's deadline. If that leaves less than Op.Timeout from the start, the
// caller ended the operation, and the store did not fail. A client may have chosen the deadline,
// and must not get a failure policy's answer because of it.
//
// A Limit allocates a channel only when a goroutine waits for it.
type Limit struct {
	context.Context // the caller's, which can end earlier
	keeper          *Timekeeper
	timeout         time.Duration
	end             time.Time // the latest due, which the caller's deadline sets; zero if there is none
	short           bool      // the end leaves less than timeout from the start
	watch           watch

	mu        sync.Mutex
	due       time.Time
	connected bool
	waited    bool
	lingers   bool
	over      error  // the cause, if the Limit ended the operation
	waiting   string // why it had no connection then, if that is known
	err       error  // what Err returns from now on

	// What there is when somebody waits.
	done   chan struct{}
	unhook func() bool // from the caller's context; nil if that is not waited for
	hooks  *hook
}

// hook is a function that is called when a Limit has ended.
type hook struct {
	f    func()
	next *hook
}

type limitKey struct{}

// errLimit is the cause if the operation used up its time.
var errLimit = fmt.Errorf("no answer within the time limit: %w", context.DeadlineExceeded)

// tooShort returns the cause if the caller's deadline left the operation less than its time.
func (l *Limit) tooShort() error {
	return fmt.Errorf("the context's deadline leaves less than the time limit of %v; "+
		"use a later deadline, or a shorter limit with limiter.WithTimeout: %w", l.timeout, context.DeadlineExceeded)
}

// Connected tells the Limit in ctx, if there is one, that the operation has a connection. Only the
// first call does anything.
func Connected(ctx context.Context) {
	l, ok := ctx.Value(limitKey{}).(*Limit)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.connected {
		l.restart(l.timeout)
	}
}

// Restart gives the operation of the Limit ctx its timeout again, from now on.
func Restart(ctx context.Context, timeout time.Duration) {
	if l, ok := ctx.(*Limit); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.restart(timeout)
	}
}

// Renew gives the operation of the Limit ctx its full time again, from now on. A queue calls it
// when it sends an operation that waited while the store answered others. If the caller's deadline
// leaves less than that, the caller ended the operation, and the store did not fail.
func Renew(ctx context.Context) {
	l, ok := ctx.(*Limit)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connected = true
	if due := l.within(time.Now(), l.timeout); due.After(l.due) {
		l.due = due // expire goes by it; to tell the keeper now would cost every call
	}
	l.short = l.short || l.due.Equal(l.end)
}

// Linger lets the operation of the Limit ctx continue for 100 ms after its caller has left. Call it
// when the operation has a connection and is about to be sent.
func Linger(ctx context.Context) {
	if l, ok := ctx.(*Limit); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.connected, l.lingers = true, true
	}
}

// Limited reports whether a time limit ends ctx.
func Limited(ctx context.Context) bool {
	return ctx.Value(limitKey{}) != nil
}

// Ended returns the error of a context that the caller ended, also by a deadline that left the
// operation less than its time. It returns nil if the context has not ended, or if the operation
// used up its time.
func Ended(ctx context.Context) error {
	if l, ok := ctx.Value(limitKey{}).(*Limit); ok {
		switch over := l.cause(); {
		case errors.Is(over, errLimit):
			return nil
		case over != nil:
			return over
		}
		if err := l.Context.Err(); err != nil { // also while it lingers
			return err
		}
	}
	return ctx.Err()
}

// endedByLimit reports whether a Limit ended ctx, not the caller. If it is known, endedByLimit also
// returns why the operation had no connection.
func endedByLimit(ctx context.Context) (ended bool, waiting string) {
	l, ok := ctx.Value(limitKey{}).(*Limit)
	if !ok {
		return false, ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over != nil, l.waiting
}

// Done returns a channel that is closed when the operation has used up its time, or
// the caller's context ends.
func (l *Limit) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait()
	if l.err == nil && l.unhook == nil && l.Context.Done() != nil {
		l.unhook = context.AfterFunc(l.Context, l.leave)
	}
	return l.done
}

// wait creates the channel that is closed when the context ends, and starts the time limit. It does
// not watch the caller's context.
func (l *Limit) wait() {
	l.look()
	if l.done != nil {
		return
	}
	l.done = make(chan struct{})
	if l.err != nil {
		close(l.done)
		return
	}
	l.keeper.watch(l, l.due)
}

// Err returns why the context has ended, and nil if it has not.
func (l *Limit) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	return l.err
}

// AfterFunc calls f in its own goroutine after the context has ended. [context.AfterFunc] calls
// this method.
func (l *Limit) AfterFunc(f func()) (stop func() bool) {
	l.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		go f()
		return func() bool { return false }
	}
	h := &hook{f, l.hooks}
	l.hooks = h
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for at := &l.hooks; *at != nil; at = &(*at).next {
			if *at == h {
				*at = h.next
				return true
			}
		}
		return false
	}
}

// Value returns the Limit itself, or a value of the caller's context.
func (l *Limit) Value(key any) any {
	if key == (limitKey{}) {
		return l
	}
	return l.Context.Value(key)
}

func (l *Limit) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// within returns now plus d, or the end if that is earlier.
func (l *Limit) within(now time.Time, d time.Duration) time.Time {
	due := now.Add(d)
	if !l.end.IsZero() && l.end.Before(due) {
		return l.end
	}
	return due
}

func (l *Limit) restart(timeout time.Duration) {
	if l.err != nil {
		return
	}
	l.connected = true
	l.again(timeout)
}

// again gives the operation d from now on.
func (l *Limit) again(d time.Duration) {
	l.due = l.within(time.Now(), d)
	if l.done != nil {
		l.keeper.watch(l, l.due)
	}
}

// expire ends the context if its time is over, unless a connection is being made.
func (l *Limit) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.err != nil {
		return
	}
	if now.Before(l.due) { // started anew in the meantime
		l.keeper.watch(l, l.due)
		return
	}
	dialing := l.keeper.Dialing
	more := DialLimit - l.timeout
	if !l.connected && !l.waited && more > 0 && dialing != nil && dialing() && l.within(now, more).After(now) {
		l.waited = true
		l.again(more)
		return
	}
	err := l.Context.Err()
	if err == nil {
		err, l.over = context.Canceled, errLimit
		if l.short && !now.Before(l.end) {
			l.over = l.tooShort()
		}
		if !l.connected && l.keeper.Waiting != nil {
			l.waiting = l.keeper.Waiting()
		}
	}
	l.finish(err)
}

// look ends the context if the caller's has ended.
func (l *Limit) look() {
	if l.err == nil && !l.lingers {
		if err := l.Context.Err(); err != nil {
			l.finish(err)
		}
	}
}

// leave is called when the caller's context has ended.
func (l *Limit) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch now := time.Now(); {
	case l.err != nil:
	case !l.lingers:
		l.finish(l.Context.Err())
	case now.Add(lingering).Before(l.due):
		l.again(lingering)
	}
}

// finish ends the context.
func (l *Limit) finish(err error) {
	if l.err != nil {
		return
	}
	l.err = err
	if l.done == nil {
		return
	}
	l.keeper.forget(l)
	close(l.done)
	for ; l.hooks != nil; l.hooks = l.hooks.next {
		go l.hooks.f()
	}
}

func (l *Limit) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unhook != nil {
		l.unhook()
	}
	l.finish(context.Canceled)
}

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
	// lingering is how long a statement may go on after its caller has left: to cut it
	// off costs the connection, and most are about to answer.
	lingering = 100 * time.Millisecond
)

// Limit is the context of one operation on a database that others use as well. It
// ends when the operation has used up its time: [limiter.Op.Timeout], from when it
// has a connection.
//
// It costs a channel only when somebody waits for it.
type Limit struct {
	context.Context // the caller's, which can end earlier
	keeper          *Timekeeper
	timeout         time.Duration
	end             time.Time // of all there is; zero if there is no such time
	short           bool      // the deadline was near from the beginning
	watch           watch

	mu        sync.Mutex
	due       time.Time
	connected bool
	waited    bool
	lingers   bool
	over      error // the cause, if the Limit ended the operation
	err       error // what Err returns from now on

	// What there is when somebody waits.
	done   chan struct{}
	unhook func() bool // from the caller's context; nil if that is not waited for
	hooks  *hook
}

// hook is a function to be called when a Limit has ended.
type hook struct {
	f    func()
	next *hook
}

type limitKey struct{}

// The causes of a context that a Limit has ended: for the operation's own time, and
// for that of a caller who left it next to none.
var (
	errLimit = fmt.Errorf("no answer in the time that the operation had: %w", context.DeadlineExceeded)
	errShort = fmt.Errorf("too little time before the caller's deadline: %w", context.DeadlineExceeded)
)

// Connected tells the Limit that ctx is, if it is one, that there is a connection
// now. Only the first call does anything.
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

// Restart gives the operation whose Limit ctx is timeout from now, for what it does
// with the connection that it has.
func Restart(ctx context.Context, timeout time.Duration) {
	if l, ok := ctx.(*Limit); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.restart(timeout)
	}
}

// Linger lets the operation whose Limit ctx is go on for 100 ms after its caller has
// left, from now on, when it has a connection: what it sends there is under way.
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

// Ended returns the error of a context that the caller ended, if only by a deadline
// too near for a store to keep, and nil if it has not ended or its time limit ended it.
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

// wait makes the channel that is closed when the context has ended, and has the time
// kept, but for the caller's.
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

// AfterFunc calls f in its own goroutine after the context has ended, as
// [context.AfterFunc] does, which looks for it here.
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

// Value returns the Limit itself, or what the caller's context holds.
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

// within returns the time that lies d after now, or the end if that is earlier.
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

// again gives the operation d from now.
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
			l.over = errShort
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

// Package opcontext keeps the time limits of the operations of a SQL store: [Deadlines] makes a
// [Context] for each operation. It also says who ended an operation, the time limit or the caller,
// and which error follows from that.
//
// Packages postgres and sqlite make the contexts, and internal/batch waits on them. The package
// internal/sweep uses [Interrupted]. See DESIGN.md, "A timeout is not the caller's cancellation".
package opcontext

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
)

const (
	// DialTimeout is how long an operation waits for a connection that is being made. TCP, TLS and
	// authentication take a dozen round trips. A database that sleeps may take longer to wake up: see
	// docs/operations.md.
	DialTimeout = 3 * time.Second
	// Grace is how long before the context's deadline an operation ends, so that the caller can still
	// answer. It is also how long a statement may continue after its caller has left: cutting it off
	// costs the connection, and most statements are about to end.
	Grace = 100 * time.Millisecond
	// deadlineDelay is how long after the caller's deadline a statement may continue, if that deadline
	// leaves less than twice as long. Otherwise each caller with a deadline of a few milliseconds could
	// cut off a statement on a busy machine. For the same reason, a statement may take this long if its
	// operation has less time left when it is sent.
	deadlineDelay = 25 * time.Millisecond
	// dialPoll is how often an operation whose time is over checks whether a connection is still being made.
	dialPoll = 100 * time.Millisecond
)

// Context is the context of one operation. It ends when the operation has used up its time:
// [limiter.Op.Timeout], counted from when it has a connection.
//
// It ends before the caller's deadline. If that leaves less than Op.Timeout from the start, the
// caller ended the operation, and the store did not fail. A client may have chosen the deadline,
// and no failure policy must apply because of it.
//
// A Context allocates a channel only when a goroutine waits for it.
type Context struct {
	context.Context // the caller's, which can end earlier
	deadlines       *Deadlines
	timeout         time.Duration
	end             time.Time // the latest due, which the caller's deadline sets; zero if there is none
	statementEnd    time.Time // the end of a statement that is in flight, if it is another one
	shortDeadline   bool      // the end leaves less than timeout from the start
	index           int       // among those that Deadlines ends, counted from 1; 0 if it is not there

	mu           sync.Mutex
	due          time.Time
	connected    bool
	dialEnd      time.Time // until when it may wait for a connection that is being made; zero before it does
	dialed       bool      // later, none was being made any more
	delaysCancel bool
	leastGranted bool          // Begin has given the operation more time
	lockWait     time.Duration // the most that a statement waits for a row lock; 0 if due alone bounds it
	queueWait    time.Duration // the most that it waits in the queue of all processes before that
	cause        error         // why, if the Context ended the operation
	waitReason   string        // why it had no connection then, if that is known
	err          error         // what Err returns from now on

	// What there is when somebody waits.
	answered     chan<- bool // of Await: gets false when the Context ends
	done         chan struct{}
	stopWatching func() bool // from the caller's context; nil if that is not watched
	callbacks    *callback
}

// callback is a function that is called when a Context has ended.
type callback struct {
	f    func()
	next *callback
}

type contextKey struct{}

// Connected tells the Context in ctx, if there is one, that the operation has a connection; fresh
// reports whether that was made for it. The time of an operation that waited for a dial, its own or
// another one, starts again. Only the first call does anything.
func Connected(ctx context.Context, fresh bool) {
	c, ok := ctx.Value(contextKey{}).(*Context)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && !c.connected && (fresh || !c.dialEnd.IsZero()) {
		c.connected = true
		c.extend(c.timeout)
	}
}

// LockWait returns for how long a statement under ctx may wait for a lock: at most what [Begin] was told, and
// at most 2/5 of the time that is left. PostgreSQL applies lock_timeout to each wait of a statement. If
// another session also waits for the row, the statement waits twice. So the server ends both waits in time, and
// the connection survives. If transactions change the row in turn, there are more waits, and the time limit may cut
// the statement off.
//
// Before these waits, a statement may wait in the queue of all processes for its key: at most as long as
// Begin was told, so that all its waits end within 4/5 of the time. It does not queue for less than 1 ms.
//
// LockWait reports false if ctx has no time limit.
func LockWait(ctx context.Context) (d, queue time.Duration, ok bool) {
	c, ok := ctx.Value(contextKey{}).(*Context)
	if !ok {
		return 0, 0, false
	}
	longest := LongestLockWait(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if d = longest; c.lockWait > 0 {
		d = min(d, c.lockWait)
	}
	return d, min(c.queueWait, 2*(longest-d)), true
}

// LongestLockWait is the longest wait for a lock that LockWait can return, whatever Begin was told. It is
// 0 if ctx has no time limit.
func LongestLockWait(ctx context.Context) (d time.Duration) {
	if c, ok := ctx.Value(contextKey{}).(*Context); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		d = time.Until(c.due) / 5 * 2
	}
	return d
}

// Renew gives the operation of the Context ctx its full time again, from now on. A queue calls it
// when it sends an operation that waited while the store answered others. If the caller's deadline
// leaves less than that, the caller ended the operation, and the store did not fail. Renew reports
// false if ctx has ended, and does nothing then.
func Renew(ctx context.Context) bool { return renew(ctx, true) }

// RenewUnsent is Renew for an operation that does not have a connection yet, and may still wait for a dial.
func RenewUnsent(ctx context.Context) bool { return renew(ctx, false) }

func renew(ctx context.Context, connected bool) bool {
	c, ok := ctx.(*Context)
	if !ok {
		return ctx.Err() == nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.checkCaller(); c.err != nil {
		return false
	}
	c.connected = c.connected || connected
	if due := c.within(time.Now(), c.timeout); due.After(c.due) {
		c.due = due // expire goes by it; to schedule it now would cost every call
	}
	c.shortDeadline = c.shortDeadline || c.due.Equal(c.end)
	return true
}

// Begin tells the Context ctx that its operation has a connection, as [Connected] does, and that its
// statement is about to be sent. The statement may wait in a queue for at most queueWait. Then it may wait for
// a row lock for at most lockWait, or until shortly before the end of ctx if lockWait is 0: see [LockWait].
//
// From now on the operation continues for 100 ms after its caller has left, and for 25 ms after a deadline
// that left less than 50 ms. If less than 25 ms are left, the first Begin gives it 25 ms. If the caller's deadline
// sets the end, it gives up to 50 ms, half of the time between that end and the deadline. A statement that is cut
// off would cost the connection, and those behind it the time to make another one.
//
// If ctx has ended, or its caller has left, Begin returns the error of an operation that was not sent.
func Begin(ctx context.Context, fresh bool, lockWait, queueWait time.Duration) error {
	c, ok := ctx.(*Context)
	if ok && c.begin(fresh, lockWait, queueWait) || !ok && ctx.Err() == nil {
		return nil
	}
	return Interrupted(ctx, limiter.ErrNotApplied, nil)
}

// begin is Begin. It reports false if the context has ended, or its caller has left.
func (c *Context) begin(fresh bool, lockWait, queueWait time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.checkCaller(); c.err != nil || c.Context.Err() != nil {
		return false
	}
	if !c.connected && (fresh || !c.dialEnd.IsZero()) {
		c.extend(c.timeout)
	}
	c.connected, c.delaysCancel, c.lockWait, c.queueWait = true, true, lockWait, queueWait
	if !c.statementEnd.IsZero() {
		atEnd := c.due.Equal(c.end)
		if c.end = c.statementEnd; atEnd {
			c.due = c.within(time.Now(), c.timeout) // expire goes by it
		}
	}
	delay := deadlineDelay
	if deadline, _ := c.Context.Deadline(); c.due.Equal(c.end) {
		delay = max(delay, deadline.Sub(c.end)/2)
	}
	if least := time.Now().Add(delay); least.After(c.due) && !c.leastGranted {
		c.due, c.leastGranted = least, true // expire goes by it
	}
	return true
}

// Done returns a channel that is closed when the operation has used up its time, or
// the caller's context ends.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.checkCaller(); c.done != nil {
		return c.done
	}
	c.done = make(chan struct{})
	if c.err != nil {
		close(c.done)
		return c.done
	}
	c.deadlines.schedule(c, c.due)
	if c.Context.Done() != nil {
		c.stopWatching = context.AfterFunc(c.Context, c.callerEnded)
	}
	return c.done
}

// Err returns why the context has ended, and nil if it has not.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkCaller()
	return c.err
}

// AfterFunc calls f in its own goroutine after the context has ended. [context.AfterFunc] calls
// this method.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	c.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	h := &callback{f, c.callbacks}
	c.callbacks = h
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for at := &c.callbacks; *at != nil; at = &(*at).next {
			if *at == h {
				*at = h.next
				return true
			}
		}
		return false
	}
}

// Value returns the Context itself, or a value of the caller's context.
func (c *Context) Value(key any) any {
	if key == (contextKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// within returns now plus d, or the end if that is earlier.
func (c *Context) within(now time.Time, d time.Duration) time.Time {
	due := now.Add(d)
	if !c.end.IsZero() && c.end.Before(due) {
		return c.end
	}
	return due
}

// extend gives the operation d from now on.
func (c *Context) extend(d time.Duration) {
	c.due = c.within(time.Now(), d)
	c.deadlines.schedule(c, c.due)
}

// expire ends the context if its time is over, unless it may wait longer for a connection.
func (c *Context) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.err != nil {
		return
	}
	if now.Before(c.due) { // started anew in the meantime
		c.deadlines.schedule(c, c.due)
		return
	}
	if more := c.dialTime(now); more > 0 {
		c.extend(more)
		return
	}
	err := c.Context.Err()
	switch {
	case c.shortDeadline && !errors.Is(err, context.Canceled):
		err, c.cause = context.Canceled, c.deadlineTooNear()
	case err == nil:
		err, c.cause = context.Canceled, errTimedOut
	}
	if c.cause != nil && !c.connected && c.deadlines.WaitReason != nil {
		c.waitReason = c.deadlines.WaitReason()
	}
	c.finish(err)
}

// dialTime returns how much longer an operation whose time is over may wait for a connection. It may while one
// is being made, until about [DialTimeout] after its start. Then its time starts again once, because others may
// have waited for the same connection. It does not start again for later ones: if statements are cut off again
// and again, somebody always makes a connection.
func (c *Context) dialTime(now time.Time) time.Duration {
	if c.connected || c.dialed || c.deadlines.Dialing == nil {
		return 0
	}
	more, first := dialPoll, c.dialEnd.IsZero()
	switch dialing := c.deadlines.Dialing(); {
	case first && !dialing:
		return 0
	case first:
		c.dialEnd = now.Add(DialTimeout - c.timeout)
	case !dialing:
		c.dialed, more = true, c.timeout
	}
	return min(more, c.within(now, c.dialEnd.Sub(now)).Sub(now))
}

// checkCaller ends the context if the caller's has ended.
func (c *Context) checkCaller() {
	if c.err == nil && !c.delaysCancel {
		if err := c.Context.Err(); err != nil {
			c.finish(err)
		}
	}
}

// callerEnded is called when the caller's context has ended.
func (c *Context) callerEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch now := time.Now(); {
	case c.err != nil:
	case !c.delaysCancel:
		c.finish(c.Context.Err())
	case now.Add(Grace).Before(c.due):
		c.extend(Grace)
	}
}

// finish ends the context.
func (c *Context) finish(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.deadlines.unschedule(c)
	if c.done != nil {
		close(c.done)
	}
	if c.answered != nil {
		c.answered <- false
	}
	for ; c.callbacks != nil; c.callbacks = c.callbacks.next {
		go c.callbacks.f()
	}
}

// Stop ends a context that [Deadlines.WithTimeout] returned, when its operation is over.
func Stop(ctx context.Context) {
	c, ok := ctx.(*Context)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopWatching != nil {
		c.stopWatching()
	}
	c.finish(context.Canceled)
}

package batch

import (
	"context"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// Hold waits in the queue of op's key, as a call of [Queue.Do], until no statement of the key is in
// flight. The key then counts as in flight until [Queue.Release], and other calls of the key wait. A
// decision over several keys holds all of them while the caller itself sends it. Such a caller must
// hold keys in the order of [limiter.Op.Compare], so that no two wait for each other.
//
// Hold reports whether the store answered others while the caller waited. The error is
// [ErrRowLocked] if another session has locked the key's row, otherwise that of Do. The caller then
// does not hold the key.
func (q *Queue) Hold(ctx context.Context, op *limiter.Op) (served bool, err error) {
	q.mu.Lock()
	k := q.key(idOf(op))
	if k.slow {
		err := k.refusal(time.Now())
		q.mu.Unlock()
		if err == nil {
			err = ErrRowLocked
		}
		return false, err
	}
	if !k.inFlight && k.line == nil {
		k.inFlight = true
		q.mu.Unlock()
		return false, nil
	}
	c := &Call{ctx: ctx, Op: *op, holds: true, done: make(chan struct{})}
	k.push(c, q.config.Merges)
	q.mu.Unlock()
	err = q.await(c, k)
	return c.served, err
}

// Release ends a Hold: calls that arrived meanwhile are sent next. answered reports whether the store
// answered the caller's statement.
func (q *Queue) Release(op *limiter.Op, answered bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if start := q.free(q.keys[idOf(op)], answered); start != nil {
		go q.lead(start)
	}
}

// Lock waits until the row of op can be locked, and then releases the row. Call it after a Hold that
// failed with [ErrRowLocked], or after a statement that found the row locked. The caller holds no key
// meanwhile.
func (q *Queue) Lock(ctx context.Context, op *limiter.Op) error {
	_, err := q.do(ctx, Call{Op: *op, Locks: true})
	return err
}

// next removes calls whose time is over from the head of the queue. If a Hold is then at the head, it
// gets the key, and its full time again if the store answered others while it waited. next reports
// whether a call is left to be sent.
func (q *Queue) next(k *keyQueue) bool {
	for len(k.waiting) > 0 && !q.waits(k.waiting[0], k) {
		k.waiting = k.waiting[1:]
	}
	if len(k.waiting) == 0 {
		return false
	}
	c := k.waiting[0]
	if !c.holds {
		return true
	}
	if c.served = k.served(c); c.served {
		opcontext.Renew(c.ctx)
	}
	k.waiting = k.waiting[1:]
	if k.mixed {
		k.putBack(nil, q.config.Merges) // the calls that still wait may be units of one row
	}
	k.leaveLine()
	k.inFlight = true
	c.finish(nil)
	return false
}

// Unsent returns the error of an operation whose ctx has ended before it was sent. busy reports that
// it waited for others of this process, which the store answered: then the store is not at fault.
func Unsent(ctx context.Context, busy bool) error {
	class := limiter.ErrNotApplied
	if busy && opcontext.EndedByCaller(ctx) == nil {
		class = errKeyBusy
	}
	return opcontext.Interrupted(ctx, class, nil)
}

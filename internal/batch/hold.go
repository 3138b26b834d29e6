package batch

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// Hold is the right to send one statement for several keys, of one store. Other calls of the keys wait
// meanwhile. A Hold is not safe for concurrent use.
type Hold struct {
	// Held is how many keys it holds.
	Held int

	queues []*Queue
	ops    []limiter.Op
	renew  bool
	ctx    context.Context
	came   int64       // after the epoch
	waited bool        // the store answered others before it got a key
	unsent atomic.Bool // it has all keys, and Begin was not called yet
	sent   bool        // its statement may have been sent
}

// Waited reports whether the store answered others before the Hold got a key for which it waited.
func (h *Hold) Waited() bool { return h.waited }

// Busy reports whether the store is not at fault if the time of the Hold ends now, before its statement is sent: it has
// answered others meanwhile.
func (h *Hold) Busy() bool { return othersAnswered(h.ctx, h.came, h.queues...) }

// HoldAll waits until no statement of the keys of ops is in flight, and for a slot in the line of
// statements for single keys. Each op is of the queue with its index, and the ops are in the order of
// [limiter.Op.Compare], so that no two Holds wait for each other. With renew, an operation that waited while
// the store answered others gets its full time again. An operation that begins anew passes it the first time only,
// because otherwise it might never end.
//
// The caller must call [Hold.End], also after an error. The error is [ErrRowLocked] if another session has
// locked the row of the key Held; otherwise it is an error of [Queue.Enter].
func HoldAll(ctx context.Context, queues []*Queue, ops []limiter.Op, renew bool) (*Hold, error) {
	h := &Hold{queues: queues, ops: ops, renew: renew, ctx: ctx, came: int64(time.Since(epoch))}
	h.counter().Add(int64(len(ops)))
	for i, q := range queues {
		waited, err := q.hold(ctx, h, &ops[i], i == len(queues)-1)
		h.waited = h.waited || waited
		if err != nil {
			h.counter().Add(-int64(len(ops)))
			return h, err
		}
		h.Held++
	}
	h.unsent.Store(true)
	return h, nil
}

// counter counts the operations that wait to be sent.
func (h *Hold) counter() *atomic.Int64 { return &h.queues[0].config.Counters.Queued }

// hold waits for the key of op and, with slot, for a slot in the line.
func (q *Queue) hold(ctx context.Context, h *Hold, op *limiter.Op, slot bool) (waited bool, err error) {
	q.mu.Lock()
	k := q.key(idOf(op))
	if k.slow {
		err := k.failedFast()
		q.mu.Unlock()
		if err == nil {
			err = ErrRowLocked
		}
		return false, err
	}
	if !k.inFlight && k.line == nil && (!slot || q.takeSlot(&q.single)) {
		k.inFlight, k.unsent = true, &h.unsent
		q.mu.Unlock()
		return false, nil
	}
	c := newCall(ctx, op)
	c.hold, c.slot, c.answered = h, slot, make(chan bool, 2)
	k.push(c, q.config.Merges)
	start := q.enqueue(k)
	q.mu.Unlock()
	if start != nil {
		go q.lead(start)
	}
	err = q.await(c, k)
	return c.waited, err
}

// grant gives a key to the Hold at the head of its queue. It may renew the time of the Hold: see [HoldAll].
func (q *Queue) grant(k *keyQueue) {
	c := k.waiting[0]
	if c.waited = q.othersAnswered(c); c.waited && c.hold.renew {
		opcontext.RenewUnsent(c.ctx)
	}
	k.waiting = k.waiting[1:]
	if k.mixed {
		k.putBack(nil, q.config.Merges) // the calls that still wait may be units of one row
	}
	k.line, k.inFlight, k.unsent = nil, true, &c.hold.unsent
	c.finish(nil)
}

// Begin is [Statement.Begin] for the statement of a Hold, which may wait for a row lock for lockWait, and before
// that in the queue of all processes, until little time is left. Meanwhile its keys and its slot stay taken. It may
// renew the time of the Hold: see [HoldAll].
func (h *Hold) Begin(ctx context.Context, fresh bool, lockWait time.Duration) error {
	if h.Busy() && h.renew {
		opcontext.Renew(ctx)
	}
	h.unsent.Store(false)
	h.counter().Add(-int64(len(h.ops)))
	err := opcontext.Begin(ctx, fresh, lockWait, math.MaxInt64) // what LockWait allows
	h.sent = err == nil
	return err
}

// End releases the keys and the slot: calls that arrived meanwhile are sent next. err is the error of the
// statement. If none was sent, pass an error.
func (h *Hold) End(err error) {
	if h.unsent.Load() {
		h.counter().Add(-int64(len(h.ops)))
	}
	for i, q := range h.queues[:h.Held] {
		q.mu.Lock()
		k := q.keys[idOf(&h.ops[i])]
		if start := q.free(k, h.sent, err); start != nil {
			go q.lead(start)
		}
		if i == len(h.queues)-1 { // it has a slot
			q.release(&q.single)
		}
		q.mu.Unlock()
	}
}

// Lock waits until the row of op can be locked, and then releases the row. Call it after a Hold that
// failed with [ErrRowLocked], or after a statement that found the row locked. The caller holds no key
// meanwhile.
func (q *Queue) Lock(ctx context.Context, op *limiter.Op) error {
	q.mu.Lock()
	k := q.key(idOf(op))
	if err := k.failedFast(); err != nil {
		q.mu.Unlock()
		return err
	}
	if !k.slow {
		q.setSlow(k)
	}
	c := newCall(ctx, op)
	c.LocksOnly = true
	k.push(c, q.config.Merges)
	_, err := q.wait(c, k)
	return err
}

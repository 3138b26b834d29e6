package batch

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// keyID identifies a key queue. Reads have queues of their own, so that they do not wait for
// a statement that waits for a row lock.
type keyID struct {
	name, key string
	kind      limiter.PolicyKind
	read      bool
}

func idOf(op *limiter.Op) keyID {
	return keyID{op.Name, op.Key, limiter.KindOf(op.Policy), op.Kind == limiter.OpLook}
}

// keyQueue holds the calls of one key that wait, in order of arrival. They wait while a
// statement of the key is in flight. If they were sent, they would wait for the row lock, each
// on a connection of its own.
type keyQueue struct {
	keyID
	waiting  []*Call
	inFlight bool
	unsent   *atomic.Bool // true while the Statement, or the Hold with all its keys, waits to begin; nil for a leader
	mixed    bool         // the waiting calls are not units of one row
	apart    bool         // must not share a statement with other keys
	line     *line        // the line in which the queue waits, or nil
	moved    bool         // a line that the queue has left may still hold it

	slow     bool      // the last statement waited too long for its row: see slow.go
	failFast error     // the error of the last statement, if it waited as long as it could
	asked    time.Time // when a statement last found the row locked
}

// push adds a call to the queue. A Hold is no unit of a row, whatever its operation is.
func (k *keyQueue) push(c *Call, merges func(*limiter.Op) bool) {
	if merges != nil && !k.mixed && c.hold == nil {
		k.mixed = c.LocksOnly || !merges(&c.Op)
		for _, last := range slices.Backward(k.waiting) {
			if last.hold == nil {
				k.mixed = k.mixed || !equal(&last.Op, &c.Op)
				break
			}
		}
	}
	k.waiting = slices.Insert(k.waiting, k.place(c), c)
}

// place returns the index in the queue at which a call enters. Releases go first, in their order, because
// they make room for the others.
func (k *keyQueue) place(c *Call) int {
	if c.Op.Kind != limiter.OpRelease {
		return len(k.waiting)
	}
	i := 0
	for i < len(k.waiting) && k.waiting[i].Op.Kind == limiter.OpRelease {
		i++
	}
	return i
}

// putBack puts calls that were not answered before those that arrived later. It drops the calls
// whose callers have left.
func (k *keyQueue) putBack(calls []*Call, merges func(*limiter.Op) bool) {
	later := k.waiting
	k.waiting, k.mixed = nil, false
	for _, c := range slices.Concat(calls, later) {
		c.sent = c.sent && c.left
		if !c.left {
			k.push(c, merges)
		}
	}
}

// fillGroup moves waiting calls of a key to a group. These are a run of calls that give back, or all
// calls of the first one's kind, policy and time. A Hold ends both, so that it gets the key in its
// turn. fillGroup moves only the first call of a slow key, so that the others count as unsent if their
// time ends. The caller has called renew for the first call.
func (q *Queue) fillGroup(k *keyQueue, g *Group) {
	waiting, head := k.waiting, k.waiting[0]
	first, locks := &head.Op, head.LocksOnly
	add := func(c *Call) {
		if c == head || q.renew(c, k) {
			g.add(c)
			q.config.Counters.Queued.Add(-1)
		}
	}
	switch {
	case k.slow:
		add(head)
		g.Equal = !locks && !GivesBack(first) && q.config.merges(first)
		k.waiting = waiting[1:]
		k.putBack(nil, q.config.Merges)
	case GivesBack(first):
		for len(k.waiting) > 0 && len(g.Calls) < max(q.config.GiveBacks, 1) && GivesBack(&k.waiting[0].Op) {
			if c := k.waiting[0]; c == head || q.waits(c, k) {
				add(c)
			}
			k.waiting = k.waiting[1:]
		}
	default:
		g.Equal = true
		k.waiting, k.mixed = waiting[:0], false
		held := false
		for _, c := range waiting {
			held = held || c.hold != nil
			switch {
			case c != head && !q.waits(c, k):
			case !held && c.LocksOnly == locks && c.Op.Kind == first.Kind && c.Op.Policy == first.Policy && c.Op.At == first.At:
				add(c)
				g.Equal = g.Equal && !locks && q.config.merges(&c.Op) && equal(first, &c.Op)
			default:
				k.push(c, q.config.Merges)
			}
		}
		clear(waiting[len(k.waiting):])
	}
	k.line, k.inFlight, g.key = nil, true, k
}

// renew prepares a call to be sent. If the store answered others while the call waited, the call gets its full
// time again, unless its key is slow. The call of a [Queue.Lock] does not, because its operation begins anew: see
// [HoldAll]. If its time is over, renew marks the call as left, and reports false.
func (q *Queue) renew(c *Call, k *keyQueue) bool {
	others := q.othersAnswered(c)
	c.waited = c.LocksOnly && others
	if !others || k.slow || c.LocksOnly || c.retried && c.renewed {
		return true
	}
	c.renewed = true
	if opcontext.Renew(c.ctx) {
		return true
	}
	q.leave(c, k)
	return false
}

// GivesBack reports whether an operation is a refund, cancel, release or reset. A store writes the row for
// each of them, even if a group has several: an audit of the row can then tell which of them made a
// change. For a grant, the state tells.
func GivesBack(op *limiter.Op) bool {
	return op.Kind == limiter.OpRefund || op.Kind == limiter.OpCancel || op.Kind == limiter.OpRelease || op.Kind == limiter.OpReset
}

// Refusable reports whether an operation can be refused.
func Refusable(op *limiter.Op) bool {
	return op.Kind == limiter.OpTake || op.Kind == limiter.OpTakeUpTo || op.Kind == limiter.OpAcquire
}

// GivenBack returns what a store returns for a refund, cancel, release or reset that [limiter.Op.Apply]
// decided.
func GivenBack(s limiter.State) limiter.State {
	if !s.Took {
		return limiter.State{}
	}
	return limiter.State{Took: true, Row: s.Row}
}

// spareKeys is how many key queues are kept for reuse.
const spareKeys = 1024

// key returns the queue of a key.
func (q *Queue) key(id keyID) *keyQueue {
	k := q.keys[id]
	if k != nil {
		return k
	}
	if n := len(q.spare); n > 0 {
		k, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		k = new(keyQueue)
	}
	k.keyID = id
	q.keys[id] = k
	return k
}

// drop removes a key queue in which no call waits, unless its key is slow. A queue that a line may
// still hold is not reused.
func (q *Queue) drop(k *keyQueue) {
	if k.slow {
		return
	}
	delete(q.keys, k.keyID)
	if !k.moved && len(q.spare) < spareKeys {
		*k = keyQueue{waiting: k.waiting}
		q.spare = append(q.spare, k)
	}
}

// free ends the statement of a key: calls that arrived meanwhile are sent next. err is the statement's error, and
// not nil if none was sent. free returns what [Queue.enqueue] returns.
func (q *Queue) free(k *keyQueue, sent bool, err error) *line {
	k.inFlight, k.unsent = false, nil
	switch now := int64(time.Since(epoch)); {
	case err == nil:
		q.answered.Store(now)
		q.config.Counters.answered.Store(now)
		if k.slow {
			q.clearSlow(k)
		}
	case sent && limiter.StoreFailed(err):
		q.failed.Store(now)
	}
	switch {
	case len(k.waiting) > 0 && q.next(k):
		return q.enqueue(k)
	case !k.inFlight:
		q.drop(k)
	}
	return nil
}

// next removes calls whose time is over from the head of the queue, and reports whether a call is left to
// be sent. If a Hold is then at the head that needs no slot, it gets the key.
func (q *Queue) next(k *keyQueue) bool {
	for len(k.waiting) > 0 && !q.waits(k.waiting[0], k) {
		k.waiting = k.waiting[1:]
	}
	if len(k.waiting) == 0 {
		return false
	}
	if c := k.waiting[0]; c.hold == nil || c.slot {
		return true
	}
	q.grant(k)
	return false
}

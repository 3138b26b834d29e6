package batch

import (
	"slices"

	"github.com/sqlimit/limiter"
)

// keyID identifies a key queue. Reads have queues of their own, so that they do not wait for
// a statement that waits for a row lock.
type keyID struct {
	name, key    string
	window, read bool
}

func idOf(op *limiter.Op) keyID {
	_, window := op.Policy.(limiter.FixedWindow)
	return keyID{op.Name, op.Key, window, op.Kind == limiter.OpLook}
}

// keyQueue holds the calls of one key that wait, in order of arrival. They wait while a
// statement of the key is in flight. If they were sent, they would wait for the row lock, each
// on a connection of its own.
type keyQueue struct {
	keyID
	waiting  []*Call
	inFlight bool
	mixed    bool   // the waiting calls are not units of one row
	apart    bool   // must not share a statement with other keys
	line     *line  // the line in which the queue waits, or nil
	moved    bool   // a line that the queue has left may still hold it
	answers  uint64 // the line's count when the queue entered it
	renew    bool   // the store has answered others while the calls waited
}

// push adds a call to the queue.
func (k *keyQueue) push(c *Call, merges func(*limiter.Op) bool) {
	if merges != nil && !k.mixed && !c.holds {
		k.mixed = !merges(&c.Op) || len(k.waiting) > 0 && !equal(&k.waiting[0].Op, &c.Op)
	}
	k.waiting = append(k.waiting, c)
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

// fill moves waiting calls to a group: a run of calls that give back, or all calls of the first one's
// kind, policy and time. A Hold ends both, so that it gets the key in its turn.
func (k *keyQueue) fill(g *Group, config *Config) {
	waiting, first := k.waiting, &k.waiting[0].Op
	if GivesBack(first) {
		for len(k.waiting) > 0 && len(g.Calls) < max(config.GiveBacks, 1) && GivesBack(&k.waiting[0].Op) {
			if c := k.waiting[0]; !c.left {
				g.add(c)
				config.Counters.Queued.Add(-1)
			}
			k.waiting = k.waiting[1:]
		}
	} else {
		g.Equal = true
		k.waiting, k.mixed = waiting[:0], false
		held := false
		for _, c := range waiting {
			held = held || c.holds
			switch {
			case c.left:
			case !held && c.Op.Kind == first.Kind && c.Op.Policy == first.Policy && c.Op.At == first.At:
				g.add(c)
				config.Counters.Queued.Add(-1)
				g.Equal = g.Equal && config.merges(&c.Op) && equal(first, &c.Op)
			default:
				k.push(c, config.Merges)
			}
		}
		clear(waiting[len(k.waiting):])
	}
	g.renew, k.renew = k.served(), false
	k.line, k.inFlight = nil, true
}

// GivesBack reports whether an operation is a refund, cancel or reset. A [Conn] writes the row for
// each of them, even if a group has several: an audit of the row can then tell which of them made a
// change. Of a grant it can tell by the state.
func GivesBack(op *limiter.Op) bool {
	return op.Kind == limiter.OpRefund || op.Kind == limiter.OpCancel || op.Kind == limiter.OpReset
}

// served reports whether the store has answered others while the calls of a key waited.
func (k *keyQueue) served() bool {
	return k.renew || k.line != nil && k.answers != k.line.answers
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

// drop removes a key queue in which no call waits. A queue that a line may still hold is not
// reused.
func (q *Queue) drop(k *keyQueue) {
	delete(q.keys, k.keyID)
	if !k.moved && len(q.spare) < spareKeys {
		*k = keyQueue{waiting: k.waiting}
		q.spare = append(q.spare, k)
	}
}

// lineFor returns the line for the next statement of a key. If no call waits, op is the next.
func (q *Queue) lineFor(k *keyQueue, op *limiter.Op) *line {
	alone := k.apart || k.mixed || len(k.waiting) >= q.config.HotKey
	if alone || len(k.waiting) == 0 && !q.config.merges(op) {
		return &q.single
	}
	return &q.shared
}

// free ends the statement of a key: calls that arrived meanwhile are sent next. answered
// reports whether the store answered the statement. It returns what [Queue.enqueue] returns.
func (q *Queue) free(k *keyQueue, answered bool) *line {
	k.inFlight, k.renew = false, answered
	if !k.next(q.config.Merges) {
		if !k.inFlight {
			q.drop(k)
		}
		return nil
	}
	return q.enqueue(k)
}

// enqueue puts a key for which calls wait into its line. It returns the line if a goroutine
// must be started to lead it.
func (q *Queue) enqueue(k *keyQueue) (start *line) {
	if k.inFlight || len(k.waiting) == 0 {
		return nil
	}
	to := q.lineFor(k, &k.waiting[0].Op)
	if k.line == to {
		return nil
	}
	k.moved = k.moved || k.line != nil // the line that it leaves skips it
	k.line, k.answers = to, to.answers
	to.keys = append(to.keys, k)
	if to.inFlight >= q.maxInFlight(to) {
		q.setTimer()
		return nil
	}
	to.inFlight++
	return to
}

// first returns the first key of a line. It removes keys that have moved, those whose callers have all
// left, and those that a Hold now has.
func (q *Queue) first(from *line) *keyQueue {
	for len(from.keys) > 0 {
		k := from.keys[0]
		if k.line == from {
			if k.next(q.config.Merges) {
				return k
			}
			if k.line = nil; !k.inFlight {
				q.drop(k)
			}
		}
		from.keys = from.keys[1:]
	}
	from.keys = nil
	return nil
}

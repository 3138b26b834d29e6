package batch

import (
	"time"

	"github.com/sqlimit/limiter"
)

// line holds the key queues that wait for a statement of one kind, and counts the statements
// of that kind that are in flight.
type line struct {
	keys     []*keyQueue
	inFlight int
}

// takeSlot counts one more statement in a line, and reports whether it may be sent.
func (q *Queue) takeSlot(l *line) bool {
	switch {
	case l == &q.slow && !q.config.Slots.acquire(true),
		l == &q.shared && l.inFlight >= q.config.Shared && !q.relieve(l),
		l == &q.single && l.inFlight >= q.config.Single && !q.relieve(l):
		return false
	}
	l.inFlight++
	return true
}

// relieve makes room in a line, and reports whether it did. A statement of one key that was sent
// [Config.LockWait] ago moves to the slow line, if there is a slot. It keeps its place in the queue of all
// processes. Otherwise a timer calls relieveLater.
func (q *Queue) relieve(l *line) bool {
	if q.config.LockWait == 0 {
		return false
	}
	for _, st := range q.statements {
		waits := st.begun.Load() && st.from == l && !st.moved && len(st.Groups) == 1
		if waits && time.Since(st.sent) >= q.config.LockWait && q.config.Slots.acquire(false) {
			l.inFlight--
			q.slow.inFlight++
			st.moved = true
			return true
		}
	}
	if !q.relieving {
		q.relieving = true
		time.AfterFunc(q.config.LockWait, q.relieveLater)
	}
	return false
}

// relieveLater starts a leader for each line that has room and waiting keys.
func (q *Queue) relieveLater() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.relieving = false
	for _, l := range []*line{&q.shared, &q.single} {
		if q.first(l) != nil && q.takeSlot(l) {
			go q.lead(l)
		}
	}
}

// freeSlot counts one statement less in a line.
func (q *Queue) freeSlot(l *line) {
	l.inFlight--
	if l == &q.slow {
		q.config.Slots.release()
	}
}

// release is freeSlot for a statement that no leader sent. It starts a leader if keys wait in the line.
func (q *Queue) release(l *line) {
	q.freeSlot(l)
	if len(l.keys) > 0 && q.first(l) != nil && q.takeSlot(l) {
		go q.lead(l)
	}
}

// lineFor returns the line for the next statement of a key. If no call waits, op is the next.
func (q *Queue) lineFor(k *keyQueue, op *limiter.Op) *line {
	switch n := len(k.waiting); {
	case n > 0 && k.waiting[0].hold != nil: // Hold.End frees a slot of this line
		return &q.single
	case k.slow:
		return &q.slow
	case k.apart, k.mixed, n >= q.config.HotKey, n == 0 && !q.config.merges(op):
		return &q.single
	}
	return &q.shared
}

// enqueue puts a key for which calls wait into its line. It returns the line if a goroutine
// must be started to lead it.
func (q *Queue) enqueue(k *keyQueue) (start *line) {
	if k.inFlight {
		return nil
	}
	to := q.lineFor(k, &k.waiting[0].Op)
	if k.line == to {
		return nil
	}
	k.moved = k.moved || k.line != nil // the line that it leaves skips it
	holds := k.waiting[0].hold != nil
	if holds && q.takeSlot(to) {
		q.grant(k)
		return nil
	}
	k.line = to
	to.keys = append(to.keys, k)
	if holds || !q.takeSlot(to) {
		return nil
	}
	return to
}

// first returns the first key of a line. It removes keys that have moved or have to, those whose callers
// have all left, and those that a Hold now has.
func (q *Queue) first(from *line) *keyQueue {
	for len(from.keys) > 0 {
		k := from.keys[0]
		if k.line == from {
			switch waits := q.next(k); {
			case waits && k.waiting[0].hold != nil && from != &q.single: // calls before the Hold have left
				q.enqueue(k)
			case waits:
				return k
			default:
				if k.line = nil; !k.inFlight {
					q.drop(k)
				}
			}
		}
		from.keys = from.keys[1:]
	}
	from.keys = nil
	return nil
}

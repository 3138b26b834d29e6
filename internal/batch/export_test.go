package batch

import (
	"context"
	"slices"
)

// Keys returns how many keys have a queue.
func (q *Queue) Keys() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.keys)
}

// InFlight returns how many statements count as in flight, in all and in each line.
func (q *Queue) InFlight() (all, shared, single, slow int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.statements), q.shared.inFlight, q.single.inFlight, q.slow.inFlight
}

// Silent reports whether the store has answered no statement.
func (c *Counters) Silent() bool { return c.answered.Load() == 0 }

// LockError is the error of a Lock with this context that waited for others, and then too long for its row.
func LockError(ctx context.Context, err error) error {
	return (&Call{ctx: ctx, waited: true}).lockError(err)
}

// Bounding returns the index of the call that bounds the waits of a statement for calls with these contexts.
func Bounding(ctxs []context.Context) int {
	g := new(Group)
	for _, ctx := range ctxs {
		g.add(&Call{ctx: ctx})
	}
	return slices.Index(g.Calls, g.bounding())
}

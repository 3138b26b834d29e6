package batch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// Statement is one statement that is to be sent. The goroutine that has it waits for a connection, calls
// [Statement.Begin], and carries out the Groups.
//
// [Queue.Enter] returns the Statement of a lone operation to its caller: see DESIGN.md, "A lone operation
// runs in its caller's goroutine". A goroutine of the queue passes all others to [Config.Send].
type Statement struct {
	// Groups are the calls to carry out: of different keys, sorted by limiter and key. They are known
	// after Begin. The store calls [Call.Decide] for each call that its statement decides. A call that is
	// alone in its statement must be decided; the queue sends others again that are not.
	Groups []*Group
	// Written is when the row was last written, as far as is known. The store sets it before a statement of
	// one key ends for which [Statement.NeedsWritten] holds.
	Written time.Time

	queue     *Queue
	from      *line
	moved     bool            // holds a slot of the slow line instead: see Queue.relieve
	own       *Call           // of a lone operation, or nil
	limited   context.Context // of the statement, if a leader sends it
	unsent    atomic.Bool     // Begin was not called yet
	ended     bool            // the slot of the line has passed on to a Hold
	bounding  *Call           // of the first group: see Group.bounding
	queueWait time.Duration   // how long it may wait in the queue of all processes
	judged    bool            // it waited too long for its row: the next two are known
	queued    bool            // it waited in the queue until the end
	last      bool            // its bounding call cannot wait again
	begun     atomic.Bool     // sent is known
	sent      time.Time       // zero if it was not sent, or if the queue bounds no lock waits
}

// statements are reused, because groups are most of what an operation would allocate.
var statements = sync.Pool{New: func() any { return new(Statement) }}

// newStatement returns a Statement that is in flight until recycle. Callers of both have locked mu.
func (q *Queue) newStatement(from *line) *Statement {
	st := statements.Get().(*Statement)
	st.queue, st.from = q, from
	st.unsent.Store(true)
	if q.config.LockWait > 0 {
		q.statements = append(q.statements, st)
	}
	return st
}

// group adds a group with no calls.
func (st *Statement) group() *Group {
	n := len(st.Groups)
	st.Groups = slices.Grow(st.Groups, 1)[:n+1]
	if st.Groups[n] == nil {
		st.Groups[n] = new(Group)
	}
	return st.Groups[n]
}

// recycle clears the Statement, and keeps its memory for another one.
func (st *Statement) recycle() {
	st.queue.statements = slices.DeleteFunc(st.queue.statements, func(b *Statement) bool { return b == st })
	for _, g := range st.Groups {
		clear(g.Calls)
		*g = Group{Calls: g.Calls[:0]}
	}
	*st = Statement{Groups: st.Groups[:0]}
	statements.Put(st)
}

// errNobodyWaits is the error of Begin if all calls have left.
var errNobodyWaits = fmt.Errorf("%w: no call waits", limiter.ErrNotApplied)

// Begin fills in the Groups, and returns the context of the statement. Call it with a connection, right
// before the statement is sent. Fresh reports whether the connection was made for this statement; ctx is
// that in which the connection was made. If Begin fails, send nothing, and return the error.
//
// The context of a leader's statement is no caller's: a caller who leaves would break the connection, and
// leave the outcome of the other calls unknown.
func (st *Statement) Begin(ctx context.Context, fresh bool) (context.Context, error) {
	q, units := st.queue, 1
	st.unsent.Store(false)
	if st.own != nil {
		q.config.Counters.Queued.Add(-1)
		opcontext.Connected(ctx, fresh)
		if q.config.Counters.answered.Load() >= st.own.came { // others had the connections
			opcontext.Renew(ctx)
		}
	} else {
		if q.fill(st); len(st.Groups) == 0 {
			return nil, errNobodyWaits
		}
		ctx, units = st.limit(ctx, fresh)
	}
	now := time.Now()
	row, queue := st.lockWaits()
	if err := opcontext.Begin(ctx, fresh, row, queue); err != nil {
		return nil, err
	}
	if st.own != nil {
		st.own.sent = true
	}
	if q.config.Locked != nil {
		st.sent, st.queueWait = now, queue
		st.begun.Store(true)
	}
	q.config.Counters.Sent(len(st.Groups), units)
	return ctx, nil
}

// limit returns the context of a leader's statement, and how many calls it has. The time of the call for
// which the connection was made may be over by now, so the statement has the longest of its calls.
func (st *Statement) limit(ctx context.Context, fresh bool) (limited context.Context, units int) {
	var longest time.Duration
	for _, g := range st.Groups {
		units += len(g.Calls)
		for _, c := range g.Calls {
			longest = max(longest, c.Op.Timeout)
			opcontext.Connected(c.ctx, fresh)
		}
	}
	st.bounding = st.Groups[0].bounding()
	st.limited = st.queue.config.Deadlines.WithTimeout(context.WithoutCancel(ctx), max(longest, opcontext.Grace))
	return st.limited, units
}

// lockWaits returns how long the statement may wait for row locks, 0 if only its time bounds that. Calls that
// failed together with others wait for a quarter of the usual time: they have waited before, and some
// of their rows are probably locked.
//
// Before that, a take of one key may wait behind those of other processes. All its waits end within 3/4 of the time
// that its [Group.bounding] call has left. If that queue does not move, the rest is enough for a try beside it. The
// statement of a slow key does not queue: behind others, it would not learn that its row is locked.
func (st *Statement) lockWaits() (row, queue time.Duration) {
	config := &st.queue.config
	if config.Locked == nil {
		return 0, 0
	}
	longest := opcontext.LongestLockWait(st.bounding.ctx)
	switch {
	case st.from == &st.queue.slow: // no longer than its caller waits
		return max(longest, 1), 0
	case len(st.Groups) > 1:
		return config.SharedLockWait, 0
	case st.Groups[0].Calls[0].retried:
		row = config.LockWait / 4
	default:
		row = config.LockWait
	}
	row = max(1, min(row, longest/2)) // little time is left for both
	return row, longest/8*15 - 2*row  // longest is 2/5 of the time
}

// isLocked reports whether the statement was sent and failed because it waited too long for its row.
func (st *Statement) isLocked(err error) bool {
	return !st.sent.IsZero() && st.queue.config.Locked(err)
}

// Recover turns a panic into an error. Defer it where the statement is sent. A caller could recover a panic
// in its own goroutine, but in a goroutine of the queue a panic ends the process.
func (st *Statement) Recover(err *error) {
	if p := recover(); p != nil {
		class := limiter.ErrNotApplied
		if !st.unsent.Load() {
			class = limiter.ErrOutcomeUnknown
		}
		*err = fmt.Errorf("%w: panic: %v", class, p)
	}
}

// End ends a Statement that [Queue.Enter] returned, with the error of its statement, and returns the outcome
// of the operation. The Statement must not be used afterwards. If the statement waited too long for its row, End
// may wait until a goroutine of the queue has sent the operation once more.
func (st *Statement) End(err error) (limiter.State, error) {
	q, c := st.queue, st.own
	if st.unsent.Load() {
		q.config.Counters.Queued.Add(-1)
	}
	q.mu.Lock()
	if !c.sent && c.ctx.Err() != nil && q.othersAnswered(c) { // they used up its time
		err = Unsent(c.ctx, true)
	}
	slot := st.from
	if st.moved {
		slot = &q.slow
	}
	k := st.Groups[0].key
	locked := err != nil && st.isLocked(err)
	again := false
	if locked {
		again, err = q.lockTimedOut(k, st, err)
	}
	st.recycle()
	if again {
		k.inFlight, k.unsent = false, nil
		waited := c.rowWait
		c = newCall(c.ctx, &c.Op)
		c.ownWait = waited
		k.putBack([]*Call{c}, q.config.Merges)
		q.release(slot)
		return q.wait(c, k)
	}
	if start := q.free(k, c.sent, err); start != nil {
		go q.lead(start)
	}
	q.release(slot)
	q.mu.Unlock()
	state := c.state
	c.recycle()
	if err != nil {
		return limiter.State{}, err
	}
	return state, nil
}

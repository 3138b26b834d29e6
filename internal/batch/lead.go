package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// lead sends statements for a line until no key waits in it. The statements run under no
// caller's context: a caller who leaves would break the connection, and leave the outcome of
// the other calls unknown.
func (q *Queue) lead(from *line) {
	for head := q.head(from); head != nil; head = q.head(from) {
		ctx, stop := q.config.Deadlines.WithTimeout(context.WithoutCancel(head.ctx), head.Op.Timeout)
		conn, err := q.connect(ctx)
		// If the time is over, it was the head's, and its caller has left. The other calls
		// have time limits of their own.
		sent := err == nil || ctx.Err() == nil
		if sent {
			q.sendNext(ctx, from, conn, err)
		}
		stop()
		if sent && from == &q.slow { // another queue may wait for the slot
			q.mu.Lock()
			q.end(from)
			q.mu.Unlock()
			return
		}
		if !GivesBack(&head.Op) {
			runtime.Gosched() // callers who were just answered may want to join the next statement
		}
	}
}

// head returns the call that has waited longest; its time limit bounds the wait for a
// connection. If no call waits, head returns nil, and the line counts one statement less.
func (q *Queue) head(from *line) *Call {
	q.mu.Lock()
	defer q.mu.Unlock()
	if k := q.first(from); k != nil {
		return k.waiting[0]
	}
	q.end(from)
	return nil
}

func (q *Queue) connect(ctx context.Context) (conn Conn, err error) {
	defer recovered(limiter.ErrNotApplied, &err)
	return q.sender.Connect(ctx)
}

// recovered turns a panic into an error. It is chance whether the goroutine of a caller sends a
// statement, who could recover the panic, or one of the queue, where it would end the process.
func recovered(class error, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: panic: %v", class, p)
	}
}

// sendNext sends one statement for keys of a line, or tells their callers why there is no
// connection.
func (q *Queue) sendNext(ctx context.Context, from *line, conn Conn, err error) {
	if conn != nil {
		defer conn.Release()
	}
	st := statements.Get().(*statement)
	defer st.recycle()
	q.fill(from, st)
	if len(st.groups) == 0 {
		return
	}
	if err == nil {
		err = q.send(ctx, conn, st, from)
	} else {
		for _, g := range st.groups {
			for _, c := range g.Calls {
				c.retried = true // no call is at fault: do not send the keys one by one
			}
		}
	}
	q.complete(st, from, err)
}

// boundLockWait sets how long a statement that is about to be sent may wait for row locks. Calls that
// failed together with others wait for a quarter of the usual time: they have waited before, and some
// of their rows are probably locked.
func (q *Queue) boundLockWait(ctx context.Context, st *statement, from *line) {
	if q.config.Locked == nil {
		return
	}
	st.sent = time.Now()
	wait := q.config.LockWait
	switch {
	case from == &q.slow: // no longer than its caller waits
		c := st.groups[0].Calls[0]
		opcontext.BoundLockWait(c.ctx, 0) // a statement of the caller itself may have bounded it
		wait, _ = opcontext.LockWait(c.ctx)
		wait = max(wait, 1)
	case len(st.groups) > 1:
		wait = q.config.SharedLockWait
	case st.groups[0].Calls[0].retried:
		wait /= 4
	}
	opcontext.BoundLockWait(ctx, wait)
}

// isLocked reports whether a statement was sent and failed because it waited too long for its row.
func (q *Queue) isLocked(st *statement, err error) bool {
	return err != nil && !st.sent.IsZero() && q.config.Locked(err)
}

// fill moves keys of a line to a statement: one key of the single line, otherwise as many as fit.
func (q *Queue) fill(from *line, st *statement) {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := 1
	if from == &q.shared {
		most = q.config.Keys
	}
	for len(st.groups) < most {
		k := q.first(from)
		if k == nil {
			break
		}
		from.keys = from.keys[1:]
		q.fillGroup(k, st.group())
	}
	slices.SortFunc(st.groups, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(a.Op().Name, b.Op().Name), cmp.Compare(a.Op().Key, b.Op().Key))
	})
}

// send sends a statement. A panic is an error of all its calls.
func (q *Queue) send(ctx context.Context, conn Conn, st *statement, from *line) (err error) {
	var longest time.Duration
	units := 0
	for _, g := range st.groups {
		units += len(g.Calls)
		for _, c := range g.Calls {
			longest = max(longest, c.Op.Timeout)
			opcontext.Connected(c.ctx, conn.Fresh())
		}
	}
	if longest > 0 { // the time of the head, in which ctx got the connection, may be over by now
		var stop func()
		ctx, stop = q.config.Deadlines.WithTimeout(context.WithoutCancel(ctx), max(longest, leastTime))
		defer stop()
		opcontext.Connected(ctx, true)
	}
	q.boundLockWait(ctx, st, from)
	q.config.Counters.Sent(len(st.groups), units)
	defer recovered(limiter.ErrOutcomeUnknown, &err)
	return conn.Send(ctx, st.groups)
}

// complete tells callers the outcome of a statement, and ends it for its keys.
func (q *Queue) complete(st *statement, from *line, err error) {
	// One invalid or locked row must not fail the other calls.
	calls := len(st.groups) + len(st.groups[0].Calls) - 1
	retry := err != nil && calls > 1 && !errors.Is(err, limiter.ErrOutcomeUnknown)
	locked := len(st.groups) == 1 && q.isLocked(st, err)
	var start []*line
	q.mu.Lock()
	if err == nil {
		from.answers++
	}
	for _, g := range st.groups {
		k := q.keys[idOf(g.Op())]
		k.apart = false
		again := locked && q.locked(k, st, from, err)
		var back []*Call
		for _, c := range g.Calls {
			switch {
			case c.answered && err == nil:
				c.finish(nil)
			case locked && !again:
				c.finish(c.lockError(err))
			case err != nil && !again && (!retry || c.retried):
				c.finish(err)
			default:
				// The call failed together with others, was not granted beside them, or could
				// not be decided. The next statement decides whether it is refused, because
				// this one read its clock before it locked the row.
				c.answered, c.retried = false, c.retried || err != nil
				if !c.left {
					q.config.Counters.Queued.Add(1)
					if err != nil {
						q.config.Counters.Retries.Add(1)
					}
				}
				k.apart = k.apart || err != nil || c.Undecided
				back = append(back, c)
			}
		}
		if len(back) > 0 {
			k.putBack(back, q.config.Merges)
		}
		if line := q.free(k, err == nil); line != nil {
			start = append(start, line)
		}
	}
	q.mu.Unlock()
	for _, line := range start {
		go q.lead(line)
	}
}

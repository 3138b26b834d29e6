package batch

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// sendOwn carries out an operation in its caller's goroutine, because waking another goroutine
// and being woken by it takes a third of the statement's time. [Queue.Do] has marked the key as
// in flight, and counted the statement in the line from. See DESIGN.md, "A lone operation runs in its
// caller's goroutine".
//
// If the statement waited too long for its row, the key is slow now. If again is set, the key still
// counts as in flight, and a leader may send the call once more.
func (q *Queue) sendOwn(ctx context.Context, call Call, from *line) (state limiter.State, err error, again bool) {
	st := statements.Get().(*statement)
	defer func() {
		again = q.ownEnded(st, from, err)
		st.recycle()
	}()
	st.own, st.own.ctx = call, ctx
	g := st.group()
	g.Calls = append(g.Calls[:0], &st.own)
	g.Equal = q.config.merges(&st.own.Op)
	if err = q.connectAndSend(ctx, st, from); err != nil {
		return limiter.State{}, err, false
	}
	return st.own.state, nil, false
}

// ownEnded ends the statement of sendOwn, and starts leaders for the calls that arrived
// meanwhile. It reports whether the call may be sent again.
func (q *Queue) ownEnded(st *statement, from *line, err error) (again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		from.answers++
	}
	q.end(from)
	k := q.keys[idOf(&st.own.Op)]
	if q.isLocked(st, err) {
		again = q.locked(k, st, from, err)
	}
	var start *line
	if !again {
		start = q.free(k, err == nil)
	}
	if start != nil {
		go q.lead(start)
	}
	if start != from && q.first(from) != nil && q.begin(from) {
		go q.lead(from)
	}
	return again
}

// connectAndSend sends a statement under its caller's context. If the caller leaves while the
// statement runs, the statement has a moment left to end: see [opcontext.DelayCancel].
func (q *Queue) connectAndSend(ctx context.Context, st *statement, from *line) (err error) {
	q.config.Counters.Queued.Add(1)
	conn, err := q.connect(ctx)
	q.config.Counters.Queued.Add(-1)
	if err != nil {
		return err
	}
	defer conn.Release()
	opcontext.Connected(ctx, conn.Fresh())
	if ctx.Err() != nil || opcontext.EndedByCaller(ctx) != nil {
		return opcontext.Interrupted(ctx, limiter.ErrNotApplied, nil)
	}
	opcontext.DelayCancel(ctx)
	q.boundLockWait(ctx, st, from)
	q.config.Counters.Sent(1, 1)
	defer recovered(limiter.ErrOutcomeUnknown, &err)
	return conn.Send(ctx, st.groups)
}

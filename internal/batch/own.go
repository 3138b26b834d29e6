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
func (q *Queue) sendOwn(ctx context.Context, op limiter.Op, from *line) (limiter.State, error) {
	st := statements.Get().(*statement)
	var err error
	defer func() {
		q.ownEnded(idOf(&op), st, from, err)
		st.recycle()
	}()
	st.own = Call{Op: op}
	g := st.group()
	g.Calls = append(g.Calls[:0], &st.own)
	g.Equal = q.config.merges(&st.own.Op)
	if err = q.connectAndSend(ctx, st, from); err != nil {
		return limiter.State{}, err
	}
	return st.own.state, nil
}

// ownEnded ends the statement of sendOwn, and starts leaders for the calls that arrived
// meanwhile.
func (q *Queue) ownEnded(id keyID, st *statement, from *line, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		from.answers++
	}
	if q.unwatch(st) {
		from.inFlight--
	}
	start := q.free(q.keys[id], err == nil)
	if start != nil {
		go q.lead(start)
	}
	if start != from && from.inFlight < q.maxInFlight(from) && q.first(from) != nil {
		from.inFlight++
		go q.lead(from)
	}
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
	if conn.Fresh() {
		opcontext.Connected(ctx)
	}
	if ctx.Err() != nil || opcontext.EndedByCaller(ctx) != nil {
		return opcontext.Interrupted(ctx, limiter.ErrNotApplied, nil)
	}
	opcontext.DelayCancel(ctx)
	q.watch(st, from)
	q.config.Counters.Sent(1, 1)
	defer recovered(limiter.ErrOutcomeUnknown, &err)
	return conn.Send(ctx, st.groups)
}

package coalesce

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// takeHere carries out a take in the goroutine of its caller, who has nobody to wait
// for: to wake up another one, and to be woken up by it, takes as long as a third of
// the statement does. The lane of the take is flying, and the statement is counted in
// the shared line.
func (q *Queue) takeHere(ctx context.Context, op limiter.Op) (state limiter.State, decided bool, err error) {
	defer q.arrive(laneKey{op.Name, op.Key})
	f := flights.Get().(*flight)
	r := f.row()
	*r = Row{Op: op, Units: 1, calls: r.calls}
	if err = q.sendHere(ctx, f.rows); err == nil {
		state, decided = r.State, r.Decided
	}
	f.clear()
	flights.Put(f)
	return state, decided, err
}

// arrive starts statements for those who came while a caller carried out his own.
func (q *Queue) arrive(id laneKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shared.flying--
	start := q.vacate(q.lanes[id])
	if start != nil {
		go q.lead(start)
	}
	if start != &q.shared && q.shared.flying < q.limits.Shared && q.first(&q.shared) != nil {
		q.shared.flying++
		go q.lead(&q.shared)
	}
}

// sendHere sends a row under its caller's context. One who leaves in mid-statement is
// heard a moment later.
func (q *Queue) sendHere(ctx context.Context, rows []*Row) (err error) {
	conn, err := q.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if conn.Fresh() {
		sqlstore.Connected(ctx)
	}
	if ctx.Err() != nil {
		return sqlstore.Interrupted(ctx, limiter.ErrNotApplied, nil)
	}
	sqlstore.Linger(ctx)
	defer recovered(limiter.ErrOutcomeUnknown, &err)
	return conn.Send(ctx, rows)
}

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
	f := flights.Get().(*flight)
	defer func() {
		q.arrive(laneKey{op.Name, op.Key}, f)
		f.clear()
		flights.Put(f)
	}()
	r := f.row()
	*r = Row{Op: op, Units: 1, calls: r.calls}
	if err := q.sendHere(ctx, f); err != nil {
		return limiter.State{}, false, err
	}
	return r.State, r.Decided, nil
}

// arrive starts statements for those who came while a caller carried out his own.
func (q *Queue) arrive(id laneKey, f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.landed(f) {
		q.shared.flying--
	}
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
func (q *Queue) sendHere(ctx context.Context, f *flight) (err error) {
	conn, err := q.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if conn.Fresh() {
		sqlstore.Connected(ctx)
	}
	if ctx.Err() != nil || sqlstore.Ended(ctx) != nil {
		return sqlstore.Interrupted(ctx, limiter.ErrNotApplied, nil)
	}
	sqlstore.Linger(ctx)
	q.watch(f, &q.shared)
	defer recovered(limiter.ErrOutcomeUnknown, &err)
	return conn.Send(ctx, f.rows)
}

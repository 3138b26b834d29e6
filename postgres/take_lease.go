package postgres

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// longestLease is how far ahead of the clock a lease can end, in nanoseconds.
const longestLease = int64(limiter.MaxHold + limiter.ClockTolerance)

// takeLease carries out a lone acquire of a lease. It is not done if another process took the last place
// meanwhile. On Citus it reads the row first, because a refusal by the UPSERT would lock the row.
func (s *Store) takeLease(ctx context.Context, db DB, t *table, g *batch.Group) (done bool, err error) {
	if s.citus {
		if done, err = s.refuseOnCitus(ctx, db, t, g); err != nil || done {
			return done, err
		}
	}
	op := g.Op()
	args := []any{op.Name, []byte(op.Key), t.Numbers(op, 0).Limit, int64(op.Hold), op.ID, at(op), longestLease}
	var row taken
	done, err = s.scanRow(ctx, db, t.sql.take, s.bounded(ctx, args, 1), t.fields([]any{&row.granted, &row.state.Now}, &row.state.Row)...)
	if err != nil {
		return false, err
	}
	if !done {
		s.counters.SecondLooks.Add(1)
		return false, nil
	}
	row.state.Tick, row.state.Took = tickOf(op), row.granted > 0
	g.Calls[0].Decide(row.state)
	return true, nil
}

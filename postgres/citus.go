package postgres

import (
	"context"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/pgschema"
)

// What differs if Citus distributes the tables: see DESIGN.md, "On Citus a decision is a read and
// one UPSERT".

// takeOnCitus carries out equal takes of one key. It reads the row, and refuses all of them if there
// is no room by the clock of the row's node, nor by the coordinator's. Otherwise the UPSERT grants as
// many as there is room for, by the coordinator's clock. It leaves g undecided if the UPSERT wrote
// nothing, and for takes that have no units.
func (s *Store) takeOnCitus(ctx context.Context, db DB, t *table, g *batch.Group) error {
	g.Decided = false
	op := g.Op()
	if !merges(op) {
		return nil
	}
	r, err := s.readRowByNodeClock(ctx, db, t, op)
	if err != nil {
		return s.readError(ctx, err)
	}
	next, state := r.apply(r.row, *op)
	if next == r.row && op.At == 0 {
		if err := s.coordinatorClock(ctx, db, t, &r); err != nil {
			return s.readError(ctx, err)
		}
		next, state = r.apply(r.row, *op)
	}
	if next == r.row {
		g.Decided = true
		for _, c := range g.Calls {
			c.Answer(state)
		}
		return nil
	}
	period, limit, cost := t.numbers(op)
	_, more := t.takeStatement(&t.sql, op)
	var a answer
	g.Decided, err = s.scanRow(ctx, db, t.sql.take, []any{
		op.Name, []byte(op.Key), period, limit, cost, at(op), more[0], int64(len(g.Calls)),
	}, a.columns(nil, t)...)
	if err == nil && !g.Decided {
		s.counters.SecondLooks.Add(int64(len(g.Calls)))
	}
	if err != nil || !g.Decided {
		return err
	}
	a.decide(t, op)
	if op.At != 0 {
		a.state.Now = op.At // the statement answers the row's
	}
	g.State, g.Granted = a.state, a.granted
	s.answerUnits(t, g)
	return nil
}

// coordinatorClock replaces the clock of a reading, which is that of the row's node.
func (s *Store) coordinatorClock(ctx context.Context, db DB, t *table, r *reading) error {
	_, err := s.scanRow(ctx, db, t.sql.clock, nil, &r.now)
	return err
}

// checkCitus returns an error if Citus distributes the tables and the store does not know.
func (s *Store) checkCitus(ctx context.Context) error {
	var distributed bool
	schema := pgschema.Quote(s.schema) + "."
	err := s.queryRow(ctx, read, s.text("distributed_citus"),
		[]any{schema + s.buckets.name, schema + s.windows.name}, &distributed)
	if err == nil && distributed {
		return fmt.Errorf("%w: Citus distributes the tables; pass postgres.WithCitus()", limiter.ErrMisconfigured)
	}
	return err
}

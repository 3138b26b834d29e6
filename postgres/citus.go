package postgres

import (
	"context"
	"fmt"

	"github.com/sqlimit/limiter"
)

// What differs if Citus distributes the tables: the clock (here), takes (take_citus.go), and sweeps
// (sweep_citus.go). See DESIGN.md, "On Citus a take is one UPSERT".

// setTime gives a refund or cancel the coordinator's clock as its time, because its statement on Citus
// reads none.
func (s *Store) setTime(ctx context.Context, db DB, t *table, op *limiter.Op) error {
	if !s.citus || op.At != 0 || op.Kind == limiter.OpReset {
		return nil
	}
	_, err := s.scanRow(ctx, db, t.sql.clock, nil, &op.At)
	return err
}

// coordinatorClock replaces the clock of a reading, which is that of the row's node.
func (s *Store) coordinatorClock(ctx context.Context, db DB, t *table, r *reading) error {
	_, err := s.scanRow(ctx, db, t.sql.clock, nil, &r.now)
	return err
}

// checkCitus returns an error if Citus distributes the tables and the store does not know.
func (s *Store) checkCitus(ctx context.Context) error {
	var distributed bool
	names := convert(s.tableNames(), func(name string) textArg { return textArg(name) })
	err := s.queryRow(ctx, read, s.text("distributed_citus"), []any{(*textsArg)(&names)}, &distributed)
	if err == nil && distributed {
		return fmt.Errorf("%w: Citus distributes the tables; pass postgres.WithCitus()", limiter.ErrMisconfigured)
	}
	return err
}

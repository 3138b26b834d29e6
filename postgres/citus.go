package postgres

import (
	"context"
	"fmt"

	"github.com/sqlimit/limiter"
)

// What differs if Citus distributes the tables: the clock (here), takes (take_citus.go), and sweeps
// (sweep_citus.go). See DESIGN.md, "On Citus a take is one UPSERT".

// readClock reads the coordinator's clock.
func (s *Store) readClock(ctx context.Context, db DB, t *table) (now int64, err error) {
	_, err = s.scanRow(ctx, db, t.sql.clock, nil, &now)
	return now, err
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

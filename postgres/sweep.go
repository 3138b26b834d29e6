package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
	"github.com/sqlimit/limiter/internal/sweep"
)

// Sweep deletes up to limit rows of keys whose limit has been full again for one hour
// ([limiter.SweepGrace]). It returns how many it deleted, also with an error; a statement that ctx
// interrupts may have deleted up to 250 more. Without Sweep the row of a key stays forever, so call
// it from a scheduled job. The role needs DELETE on the tables. If limit is below 1, the error is
// [limiter.ErrInvalid].
//
// Sweep may run beside traffic and other sweeps. Each statement reads at most 250 rows and waits
// for no row lock, with [WithCitus] for at most 100 ms. After each statement Sweep rests as long as
// the statement took.
//
// A call that ends neither by limit nor by ctx visits every row. Otherwise the Store's next call
// continues where this one stopped. The first call of a new Store starts at a random row. If a call
// has time for 1/n of the rows, every expired row is deleted after n calls of one Store, or after
// about n calls of new Stores on average.
//
// Sweep goes by the database's clock. Do not run it on tables that a Limiter uses with a
// [limiter.WithClock] that is more than one hour behind: it would delete rows in use.
func (s *Store) Sweep(ctx context.Context, limit int) (removed int64, err error) {
	removed, err = s.sweeper.Sweep(ctx, limit, s.sweepTable(s.buckets), s.sweepTable(s.windows))
	if err != nil {
		err = fmt.Errorf("postgres: %w", err)
	}
	return removed, err
}

// sweepTable returns the statements that sweep t.
func (s *Store) sweepTable(t *table) sweep.Table {
	if s.citus {
		return s.sweepTableOnCitus(t)
	}
	return sweep.Table{
		Random: func(ctx context.Context) (at sweep.Cursor, err error) {
			var key string
			err = s.queryRow(ctx, read, t.sql.start, []any{
				pgschema.Quote(s.schema) + "." + t.name, rand.Int64N(sweep.PageSize),
			}, &at.Name, &key)
			if err == nil {
				at.Key, err = hex.DecodeString(key)
			}
			return at, err
		},
		Page: func(ctx context.Context, after sweep.Cursor, limit int) (found sweep.Page, err error) {
			key := after.Key
			if key == nil {
				key = []byte{} // the empty key, before all others, not NULL
			}
			var last string
			err = s.queryRow(ctx, write, t.sql.sweep, []any{
				after.Name, key, int64(sweep.PageSize), int64(limit), int64(limiter.SweepGrace),
			}, &found.Removed, &found.Read, &found.Last.Name, &last)
			if err == nil {
				found.Last.Key, err = hex.DecodeString(last)
			}
			return found, err
		},
	}
}

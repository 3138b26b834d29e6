package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// Sweep deletes up to limit rows of keys that have been as if never used for an hour
// ([limiter.SweepGrace]) and returns how many it deleted, also with an error; a statement
// that ctx interrupts may have deleted up to 250 more. Without Sweep a key that was used
// once keeps its row forever: run it from a scheduled job. The role needs DELETE on the
// tables. A limit below 1 is [limiter.ErrInvalid].
//
// Sweep may run beside traffic and beside other calls. A statement reads at most 250 rows
// and waits for no row lock; after each, Sweep rests for as long as the statement took.
//
// A call that neither limit nor ctx ends looks at every row. Otherwise the Store's next call
// goes on where this one stopped, and the first call of a new Store begins at a random row.
// So calls of any length, in one process or each in a new one, delete every expired row in
// the end: if a call has time for 1/n of the rows, a row is deleted after n calls of
// one Store, or after about n calls of new Stores on average.
//
// Sweep goes by the database's clock. Do not run it on tables that a Limiter uses with a
// [limiter.WithClock] more than an hour behind: it would delete rows in use.
func (s *Store) Sweep(ctx context.Context, limit int) (removed int64, err error) {
	removed, err = s.sweeper.Sweep(ctx, limit,
		s.sweepTable("limiter_token_buckets", s.sql.bucketStart, s.sql.bucketSweep),
		s.sweepTable("limiter_fixed_windows", s.sql.windowStart, s.sql.windowSweep))
	if err != nil {
		err = fmt.Errorf("postgres: %w", err)
	}
	return removed, err
}

// sweepTable returns the sweep of one table by two statements: start chooses a place to
// start from, and page sweeps the rows after a place.
func (s *Store) sweepTable(table, start, page string) sqlstore.SweepTable {
	return sqlstore.SweepTable{
		Random: func(ctx context.Context) (at sqlstore.Cursor, err error) {
			var key string
			err = s.queryRow(ctx, read, start, []any{
				pgschema.Quote(s.schema) + "." + table, rand.Int64N(sqlstore.PageSize),
			}, &at.Name, &key)
			if err == nil {
				at.Key, err = hex.DecodeString(key)
			}
			return at, err
		},
		Page: func(ctx context.Context, after sqlstore.Cursor, limit int) (found sqlstore.Page, err error) {
			key := after.Key
			if key == nil {
				key = []byte{} // the empty key, before all others, not NULL
			}
			var last string
			err = s.queryRow(ctx, write, page, []any{
				after.Name, key, int64(sqlstore.PageSize), int64(limit), int64(limiter.SweepGrace),
			}, &found.Removed, &found.Read, &found.Last.Name, &last)
			if err == nil {
				found.Last.Key, err = hex.DecodeString(last)
			}
			return found, err
		},
	}
}

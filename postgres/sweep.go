package postgres

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// Sweep removes up to limit keys that have been as if never used for an hour, in
// order of the primary key, in statements of at most 250 rows which wait for nobody,
// and with rests as long as these between them. Traffic may go on beside it. The role needs DELETE on the tables.
// It returns what it removed even with an error. A limit below 1 is
// [limiter.ErrInvalid].
//
// Without a Sweep nothing goes wrong, but a key that was used once keeps its row
// forever: run it from a scheduled job.
func (s *Store) Sweep(ctx context.Context, limit int) (removed int64, err error) {
	removed, err = sqlstore.Sweep(ctx, limit, s.sweepPage(s.sql.bucketSweep), s.sweepPage(s.sql.windowSweep))
	if err != nil {
		err = fmt.Errorf("postgres: %w", err)
	}
	return removed, err
}

func (s *Store) sweepPage(sql string) sqlstore.SweepPage {
	return func(ctx context.Context, after sqlstore.Cursor, limit int) (page sqlstore.Page, err error) {
		key := after.Key
		if key == nil {
			key = []byte{} // the empty key, before all others, not NULL
		}
		var last string
		_, err = s.queryRow(ctx, write, sql, []any{
			after.Name, key, int64(sqlstore.PageSize), int64(limit), int64(limiter.SweepGrace),
		}, &page.Removed, &page.Read, &page.Last.Name, &last)
		if err == nil {
			page.Last.Key, err = hex.DecodeString(last)
		}
		return page, err
	}
}

package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// Sweep removes up to limit keys that have been as if never used for an hour, and tells how many. It
// reads in pages of a thousand rows and takes the write lock, for about a millisecond, only where a
// page has expired rows: it may run beside traffic, in any number of processes, from a timer or at the
// end of a request. Without it the tables grow with the number of keys ever seen. If the context ends
// or the database fails, it returns the number so far and the error.
func (s *Store) Sweep(ctx context.Context, limit int) (removed int64, err error) {
	now, err := limiter.Op{}.Clock(s.now)
	if err != nil {
		return 0, fmt.Errorf("sqlite: %w", err)
	}
	before := now - int64(limiter.SweepGrace)
	removed, err = sqlstore.Sweep(ctx, limit, s.sweep(buckets, before), s.sweep(windows, before))
	if err != nil {
		return removed, fmt.Errorf("sqlite: %w", err)
	}
	return removed, nil
}

// sweep returns the sweep of one table, which removes what had ended at the instant before.
func (s *Store) sweep(t *table, before int64) sqlstore.SweepPage {
	return func(ctx context.Context, after sqlstore.Cursor, limit int) (found sqlstore.Page, err error) {
		reader, writer, err := s.pools()
		if err != nil {
			return found, err
		}
		if after.Key == nil {
			after.Key = []byte{} // nil is NULL, which no key compares with
		}
		var expired int64
		err = attempt(ctx, func(ctx context.Context) error {
			found, expired = sqlstore.Page{}, 0
			return reader.query(ctx, t.page, func(columns []driver.Value) error {
				found.Last.Name, _ = columns[0].(string)
				found.Last.Key, _ = columns[1].([]byte)
				found.Read++
				var end int64
				err := scan(columns[2:], &end)
				expired += end
				return err
			}, after.Name, after.Key, before, int64(sqlstore.PageSize))
		})
		if err != nil || expired == 0 {
			return found, err
		}
		if err := s.enter(ctx); err != nil {
			return found, err
		}
		defer s.leave()
		err = attempt(ctx, func(ctx context.Context) (err error) {
			found.Removed, err = writer.exec(ctx, t.sweep,
				after.Name, after.Key, found.Last.Name, found.Last.Key, before, int64(limit))
			return err
		})
		return found, err
	}
}

package sqlite

import (
	"context"
	"database/sql"
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
	removed, err = sqlstore.Sweep(ctx, limit,
		s.sweep("bucket_page", "bucket_sweep", before), s.sweep("window_page", "window_sweep", before))
	if err != nil {
		return removed, fmt.Errorf("sqlite: %w", err)
	}
	return removed, nil
}

// sweep returns the sweep of one table: the statement page reads a page, and remove removes what in it
// had ended at the instant before.
func (s *Store) sweep(page, remove statement, before int64) sqlstore.SweepPage {
	return func(ctx context.Context, after sqlstore.Cursor, limit int) (sqlstore.Page, error) {
		if after.Key == nil {
			after.Key = []byte{} // nil is NULL, which no key compares with
		}
		var found sqlstore.Page
		var expired int
		err := s.read(ctx, func(ctx context.Context, p *pool) error {
			found, expired = sqlstore.Page{}, 0
			return p.query(ctx, page, func(rows *sql.Rows) error {
				var end bool
				if err := rows.Scan(&found.Last.Name, &found.Last.Key, &end); err != nil {
					return err
				}
				found.Read++
				if end {
					expired++
				}
				return nil
			}, after.Name, after.Key, before, sqlstore.PageSize)
		})
		if err != nil || expired == 0 {
			return found, err
		}
		err = s.write(ctx, func(ctx context.Context, p *pool) (err error) {
			found.Removed, err = p.exec(ctx, remove,
				after.Name, after.Key, found.Last.Name, found.Last.Key, before, limit)
			return err
		})
		return found, err
	}
}

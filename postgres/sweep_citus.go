package postgres

import (
	"context"
	"encoding/hex"
	"math/rand/v2"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sweep"
)

// sweepTableOnCitus returns the statements that sweep t.
func (s *Store) sweepTableOnCitus(t *table) sweep.Table {
	return sweep.Table{
		Random: func(ctx context.Context) (sweep.Cursor, error) { return s.randomRow(ctx, t) },
		Page: func(ctx context.Context, after sweep.Cursor, limit int64) (sweep.Page, error) {
			return s.sweepPage(ctx, t, after, limit)
		},
	}
}

// samples are the percentages of a table's blocks that randomRow reads. The second one is for tables
// in which the first one finds no row. A third one would read much of a table that has become empty.
var samples = []float64{0.001, 0.1}

// randomRow returns the row at which a sweep starts: up to a page before a random row. It returns
// the zero Cursor if that is before the first row, or if the samples hold no row.
func (s *Store) randomRow(ctx context.Context, t *table) (at sweep.Cursor, err error) {
	for _, percent := range samples {
		at, err = s.readCursor(ctx, t.sql.sample, percent)
		if err != nil {
			return at, err
		}
		if at.Name != "" {
			return s.readCursor(ctx, t.sql.before, at.Name, keyArg(at), rand.Int64N(sweep.PageSize))
		}
	}
	return at, nil
}

// readCursor runs a statement that returns a row's place, or no row.
func (s *Store) readCursor(ctx context.Context, sql string, args ...any) (at sweep.Cursor, err error) {
	var key string
	if err = s.queryRow(ctx, read, sql, args, &at.Name, &key); err == nil {
		at.Key, err = hex.DecodeString(key)
	}
	return at, err
}

// sweepPage sweeps a page of t by one statement that reads it, and one for each limiter in it that
// deletes. Citus has no FOR UPDATE SKIP LOCKED for rows of several shards.
func (s *Store) sweepPage(ctx context.Context, t *table, after sweep.Cursor, limit int64) (found sweep.Page, err error) {
	var expired []sweep.Cursor
	err = s.run(ctx, read, func(db DB) error {
		found, expired, err = s.readPage(ctx, db, t, after)
		return err
	})
	if int64(len(expired)) > limit { // the next page begins after these, also if one of them is locked
		expired = expired[:limit]
		found.Last, found.End = expired[limit-1], false
	}
	for len(expired) > 0 && err == nil {
		name, n := expired[0].Name, 1
		for n < len(expired) && expired[n].Name == name {
			n++
		}
		var removed int64
		removed, err = s.remove(ctx, t, name, expired[:n])
		found.Removed += removed
		expired = expired[n:]
	}
	return found, err
}

// readPage reads the rows after a cursor, and returns those that have expired.
func (s *Store) readPage(ctx context.Context, db DB, t *table, after sweep.Cursor) (found sweep.Page, expired []sweep.Cursor, err error) {
	rows, err := db.Query(ctx, t.sql.page, s.args([]any{
		after.Name, keyArg(after), int64(sweep.PageSize), int64(limiter.SweepGrace),
	})...)
	if err != nil {
		return found, nil, err
	}
	defer rows.Close()
	read := 0
	for ; rows.Next(); read++ {
		var key string
		var old bool
		if err := rows.Scan(&found.Last.Name, &key, &old); err != nil {
			return found, nil, err
		}
		if found.Last.Key, err = hex.DecodeString(key); err != nil {
			return found, nil, err
		}
		if old {
			expired = append(expired, found.Last)
		}
	}
	found.End, found.Visited = read < sweep.PageSize, int64(read)
	return found, expired, rows.Err()
}

// remove deletes rows of one limiter that are still expired. If it has to wait long for one of them,
// it deletes none: a later sweep finds them again.
func (s *Store) remove(ctx context.Context, t *table, name string, rows []sweep.Cursor) (removed int64, err error) {
	keys := make([][]byte, len(rows))
	for i, row := range rows {
		keys[i] = row.Key
	}
	err = s.run(ctx, write, func(db DB) error {
		tx, err := begin(ctx, db)
		if err != nil {
			return err
		}
		return commit(ctx, tx, func(tx DB) error {
			if s.db == nil { // otherwise it would last as long as the caller's transaction
				if err := boundLockWaits(ctx, tx); err != nil {
					return err
				}
			}
			tag, err := tx.Exec(ctx, t.sql.remove, s.args([]any{name, keys, int64(limiter.SweepGrace)})...)
			removed = tag.RowsAffected()
			return err
		})
	})
	switch sqlState(err) {
	case lockNotAvailable, deadlockDetected:
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return removed, nil
}

// boundLockWaits bounds the lock waits of a transaction, also on the workers. Citus passes on the
// whole text of a SET, so each is a statement of its own.
func boundLockWaits(ctx context.Context, tx DB) error {
	_, err := tx.Exec(ctx, "SET LOCAL citus.propagate_set_commands TO 'local'")
	if err == nil {
		_, err = tx.Exec(ctx, "SET LOCAL lock_timeout TO '"+sharedLockWait.String()+"'")
	}
	return err
}

// keyArg returns the key of a cursor. That before all rows is the empty key, not NULL.
func keyArg(c sweep.Cursor) []byte {
	if c.Key == nil {
		return []byte{}
	}
	return c.Key
}

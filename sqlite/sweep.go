package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sweep"
)

// Sweep deletes up to limit expired rows: see [limiter.Row.Expired]. It returns how many it
// deleted, also with an error. Without Sweep the tables grow with the number of keys ever used, so
// call it from a timer, a scheduled job or at the end of a request. If limit is below 1, the error
// is [limiter.ErrInvalid].
//
// Sweep may run beside traffic and other sweeps, in any number of processes. It reads pages of 250
// rows. Only if a page has expired rows, it takes the write lock for about one millisecond. After
// each page it rests three times as long as the page took.
//
// A call that ends neither by limit nor by ctx visits every row. Otherwise the Store's next call
// continues where this one stopped, and the first call of a new Store starts at a random position. If
// a call has time for 1/n of the rows, every expired row is deleted after n calls of one Store.
// Calls of new Stores may need more, because their positions depend on how the keys are distributed.
//
// Sweep goes by the process's clock. Do not run it on a file that a Limiter uses with a
// [limiter.WithClock] that is more than one hour behind: it would delete rows in use.
func (s *Store) Sweep(ctx context.Context, limit int64) (removed int64, err error) {
	now, err := limiter.Op{}.Clock(s.now)
	if err != nil {
		return 0, fmt.Errorf("sqlite: %w", err)
	}
	before := now - int64(limiter.SweepGrace)
	var swept []sweep.Table
	for _, t := range allTables {
		swept = append(swept, s.sweepTable(t, before))
	}
	removed, err = s.sweeper.Sweep(ctx, limit, swept...)
	if err != nil {
		return removed, fmt.Errorf("sqlite: %w", err)
	}
	return removed, nil
}

// SweepProgress is how far a [Store.Sweep] has come.
type SweepProgress struct {
	// Deleted is how many rows it has deleted.
	Deleted int64
	// Visited is how many rows it has visited. Total is 0, because SQLite would have to count all rows.
	Visited, Total int64
	// Position is where the Store's next Sweep continues, for [Store.ContinueSweep]. It is empty before
	// the first Sweep. It holds a key, so keep it out of logs.
	Position string
}

// SweepProgress returns how far the running [Store.Sweep] has come, or the last one. Of several
// Sweeps it means the one that began last. It may be called while Sweep runs.
func (s *Store) SweepProgress() SweepProgress {
	return SweepProgress(s.sweeper.Progress(len(allTables)))
}

// ContinueSweep makes the next [Store.Sweep] begin at a position, which another Store's SweepProgress
// returned. So the Sweeps of several processes continue each other. After an empty position, a Sweep
// begins at a random one. Do not call it while Sweep runs, because Sweep sets it. The error matches
// [limiter.ErrInvalid] if no Store of this package returns that position.
func (s *Store) ContinueSweep(position string) error {
	if err := s.sweeper.Continue(position, len(allTables), false); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	return nil
}

// sweepTable returns the statements that sweep one table. They delete rows whose keys were unused
// at the instant before.
func (s *Store) sweepTable(t *table, before int64) sweep.Table {
	return sweep.Table{
		Random: func(ctx context.Context) (sweep.Cursor, error) { return s.randomCursor(ctx, t) },
		Page: func(ctx context.Context, after sweep.Cursor, limit int64) (sweep.Page, error) {
			return s.sweepPage(ctx, t, before, after, limit)
		},
	}
}

// sweepPage reads a page and deletes up to limit of its expired rows.
func (s *Store) sweepPage(ctx context.Context, t *table, before int64, after sweep.Cursor, limit int64) (found sweep.Page, err error) {
	reader, writer, err := s.pools()
	if err != nil {
		return found, err
	}
	var read, expired int64
	err = attempt(ctx, func(ctx context.Context) error {
		found, read, expired = sweep.Page{}, 0, 0
		return reader.query(ctx, t.page, func(columns []driver.Value) error {
			found.Last = cursor(columns)
			read++
			var end int64
			err := scan(columns[2:], &end)
			expired += end
			return err
		}, after.Name, keyOf(after), before, int64(sweep.PageSize))
	})
	found.End, found.Visited = read < sweep.PageSize, read
	if err != nil || expired == 0 {
		return found, err
	}
	if err := s.startWriting(ctx); err != nil {
		return found, err
	}
	defer s.stopWriting()
	err = attemptWrite(ctx, writer, func(ctx context.Context) (err error) {
		found.Removed, err = writer.exec(ctx, t.sweep,
			after.Name, keyOf(after), found.Last.Name, found.Last.Key, before, limit)
		return err
	})
	return found, err
}

// cursor returns the position of a row whose first columns are the primary key.
func cursor(columns []driver.Value) (c sweep.Cursor) {
	c.Name, _ = columns[0].(string)
	c.Key, _ = columns[1].([]byte)
	return c
}

// keyOf returns the key of a position. It may be empty but not nil, because nil is NULL, which
// compares with no key.
func keyOf(c sweep.Cursor) []byte {
	if c.Key == nil {
		return []byte{}
	}
	return c.Key
}

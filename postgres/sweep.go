package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
	"github.com/sqlimit/limiter/internal/sweep"
)

// Sweep deletes up to limit expired rows: see [limiter.Row.Expired]. It returns how many it
// deleted, also with an error; a statement that ctx interrupts may have deleted up to 4,000 more.
// Without Sweep the row of a key stays forever, so call it from a scheduled job. The role needs
// DELETE on the tables. If limit is below 1, the error is [limiter.ErrInvalid].
//
// Sweep may run beside traffic and other sweeps. Each statement covers as much of a table as takes
// the server about 2 ms, but usually at least 16 pages. It waits for no row lock. With [WithCitus] it covers
// 250 rows, and waits for a locked row for 50 ms at most. After each statement Sweep rests three
// times as long as the statement took.
//
// A call that ends neither by limit nor by ctx visits every row. Otherwise the Store's next call
// continues where this one stopped. The first call of a new Store starts at a random position. If a
// call has time for 1/n of the rows, every expired row is deleted after n calls of one Store, or after
// about n calls of new Stores on average.
//
// Sweep goes by the database's clock. Do not run it on tables that a Limiter uses with a
// [limiter.WithClock] that is more than one hour behind: it would delete rows in use.
func (s *Store) Sweep(ctx context.Context, limit int64) (removed int64, err error) {
	var swept []sweep.Table
	for _, t := range s.tables {
		swept = append(swept, s.sweepTable(t()))
	}
	removed, err = s.sweeper.Sweep(ctx, limit, swept...)
	if err != nil {
		err = fmt.Errorf("postgres: %w", err)
	}
	return removed, err
}

// SweepProgress is how far a [Store.Sweep] has come.
type SweepProgress struct {
	// Deleted is how many rows it has deleted.
	Deleted int64
	// Visited and Total are in pages of the tables. With [WithCitus], Visited is in rows and Total is 0.
	Visited, Total int64
	// Position is where the Store's next Sweep continues, for [Store.ContinueSweep]. It is empty before
	// the first Sweep. With [WithCitus] it holds a key: keep it out of logs.
	Position string
}

// SweepProgress returns how far the running [Store.Sweep] has come, or the last one. Of several
// Sweeps it means the one that began last. It may be called while Sweep runs.
func (s *Store) SweepProgress() SweepProgress {
	return SweepProgress(s.sweeper.Progress(len(s.tables)))
}

// ContinueSweep makes the next [Store.Sweep] begin at a position, which another Store's SweepProgress
// returned. So the Sweeps of several processes continue each other. After an empty position, a Sweep
// begins at a random one. Do not call it while Sweep runs, because Sweep sets it. The error matches
// [limiter.ErrInvalid] if no Store on such tables returns that position.
func (s *Store) ContinueSweep(position string) error {
	if err := s.sweeper.Continue(position, len(s.tables), !s.citus); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

// sweepTable returns the statements that sweep t.
func (s *Store) sweepTable(t *table) sweep.Table {
	if s.citus {
		return s.sweepTableOnCitus(t)
	}
	return sweep.Table{
		Random: func(ctx context.Context) (at sweep.Cursor, err error) {
			nothing, err := s.sweepRange(ctx, t, 0, 0, 0)
			if nothing.blocks > 0 { // each page has the same chance to be in the first range
				at.Block = max(0, rand.Int64N(nothing.blocks+firstRange-1)-firstRange+1)
			}
			return at, err
		},
		Page: func(ctx context.Context, after sweep.Cursor, limit int64) (sweep.Page, error) {
			return s.sweepPages(ctx, t, after.Block, min(limit, mostRows))
		},
	}
}

const (
	// rangeTime is how long a statement of a sweep should take on the server. Operations on the rows
	// that it deletes wait meanwhile.
	rangeTime = 2 * time.Millisecond
	// firstRange and longestRange are the least and the most pages that a statement covers. On a busy
	// server the least takes longer than rangeTime, but more statements of fewer pages would cost other
	// sessions more.
	firstRange, longestRange = 16, 512
	// mostRows is the most rows that a statement deletes. It bounds a statement whose pages hold more
	// expired rows than those before them.
	mostRows = 4000
)

// nextRange returns how many pages the next statement covers. The last one covered pages in the time
// took.
func nextRange(pages int64, took time.Duration) int64 {
	next := pages * int64(rangeTime) / max(1, int64(took))
	return min(max(firstRange, next), 2*pages, longestRange)
}

// sweepPages sweeps a range of pages, whose size adapts to the time that statements take.
func (s *Store) sweepPages(ctx context.Context, t *table, from, limit int64) (found sweep.Page, err error) {
	pages := t.pages.Load()
	swept, err := s.sweepRange(ctx, t, from, from+pages, limit)
	if err != nil {
		// The caller may never have the time for so many pages.
		t.pages.Store(max(1, pages/2))
		return found, err
	}
	found.Removed = swept.removed
	found.Total = swept.blocks
	if swept.locked == limit && swept.removed > 0 { // there may be more expired rows in the range
		found.Last.Block, swept.took = from, max(swept.took, rangeTime)
	} else {
		found.Last.Block = from + pages
		found.Visited = max(0, min(found.Last.Block, swept.blocks)-from)
		found.End = found.Last.Block >= swept.blocks
	}
	t.pages.Store(nextRange(pages, swept.took))
	return found, nil
}

// swept is what sweep.sql returns.
type swept struct {
	removed, locked int64 // rows
	blocks          int64 // of the table
	took            time.Duration
}

// sweepRange deletes up to limit expired rows of the pages from a first one to before an end.
func (s *Store) sweepRange(ctx context.Context, t *table, from, end, limit int64) (r swept, err error) {
	tid := func(page int64) string { return fmt.Sprintf("(%d,0)", page) }
	err = s.queryRow(ctx, write, t.sql.sweep, []any{
		tid(from), tid(end), limit, int64(limiter.SweepGrace), pgschema.Quote(s.schema) + "." + t.Name,
	}, &r.removed, &r.locked, &r.blocks, &r.took)
	return r, err
}

// Package sweep deletes expired rows page by page. The Sweep methods of postgres and sqlite call
// [Sweeper.Sweep] with the statements of their tables. See DESIGN.md, "Sweeps are slow and start at
// a random position".
package sweep

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

const (
	// PageSize is how many rows a statement reads in the order of the primary key, so that it holds
	// locks for milliseconds.
	PageSize = 250
	// rests is how much longer a sweep rests than it works. In a table larger than the cache, traffic
	// beside it waits for the disk: with 1 its p99 was 42 ms instead of 1.9, with 3 it was 8.9.
	rests = 3
	// longestPause is how long a sweep rests after a statement at most.
	longestPause = 100 * time.Millisecond
)

// Cursor is a position in a table: a block of the file, or a place in the primary key. A table uses
// one of the two. The zero Cursor is before all rows.
type Cursor struct {
	Block int64
	Name  string
	Key   []byte
}

// Compare orders cursors as the file and the primary key do.
func (c Cursor) Compare(d Cursor) int {
	return cmp.Or(cmp.Compare(c.Block, d.Block), strings.Compare(c.Name, d.Name), bytes.Compare(c.Key, d.Key))
}

// Page is the result of one statement of a sweep. The statement deleted Removed rows between the
// cursor and Last. End reports that no row comes after Last.
//
// Visited counts how much of the table lies between the two, and Total how much the table has. Both
// are in pages or in rows. Total is 0 if it is not known.
type Page struct {
	Removed        int64
	Last           Cursor
	End            bool
	Visited, Total int64
}

// Table has the statements that sweep one table.
type Table struct {
	// Random returns a random position, so that the page after it may hold any row. It returns the
	// zero Cursor if it finds no row. With an error it may return any position.
	Random func(ctx context.Context) (Cursor, error)
	// Page reads some rows after a cursor and deletes up to limit of them: those that expired an
	// hour ago, which it checks again when it deletes them.
	Page func(ctx context.Context, after Cursor, limit int64) (Page, error)
}

// Sweeper carries out the sweeps of one Store. It remembers where the last sweep stopped, so that
// sweeps that are too short for the whole table continue each other. A new Sweeper starts at a
// random position. The zero Sweeper is valid. A Sweeper is safe for concurrent use.
type Sweeper struct {
	mu        sync.Mutex
	positions map[int]Cursor // of the tables, by their order
	latest    *progress      // of the sweep that began last
}

// Sweep deletes up to limit rows. It goes once around each table in the order of its cursors.
// It takes a page of each table in turn, the first one of a random table. Between statements it
// checks ctx and rests three times as long as the last statement took. If ctx ends or a statement fails, it
// returns the number of deleted rows and the error.
func (s *Sweeper) Sweep(ctx context.Context, limit int64, tables ...Table) (removed int64, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("%w: the limit of Sweep is %d; it must be at least 1", limiter.ErrInvalid, limit)
	}
	done := s.begin(len(tables))
	var circles []*circle
	for i, t := range tables {
		circles = append(circles, s.circle(i, t))
	}
	var took time.Duration
	for next := rand.IntN(len(tables)); len(circles) > 0; {
		next %= len(circles)
		c := circles[next]
		rest(ctx, min(rests*took, longestPause))
		if ctx.Err() != nil {
			return removed, opcontext.Interrupted(ctx, limiter.ErrNotApplied, nil)
		}
		began := time.Now()
		page, err := c.step(ctx, limit-removed)
		s.remember(c, page, done)
		removed += page.Removed
		switch {
		case err != nil || removed == limit:
			return removed, err
		case c.closed:
			circles = slices.Delete(circles, next, next+1)
		default:
			next++
		}
		took = time.Since(began)
	}
	return removed, nil
}

// circle is one Sweep's way around a table: from a position to the end, and from the beginning to
// that position.
type circle struct {
	Table
	table   int
	begun   bool   // whether from is known
	from    Cursor // where the circle begins
	at      Cursor // up to where the rows were swept
	wrapped bool   // whether at is on the way from the beginning
	closed  bool
}

// circle returns the circle that begins where the last one around the table stopped.
func (s *Sweeper) circle(table int, t Table) *circle {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, begun := s.positions[table]
	return &circle{Table: t, table: table, begun: begun, from: at, at: at}
}

// remember stores the position that c has reached, and counts the page in done.
func (s *Sweeper) remember(c *circle, page Page, done *progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.positions == nil {
		s.positions = map[int]Cursor{}
	}
	s.positions[c.table] = c.at
	done.add(c.table, page)
}

// step sweeps the next page. If it deletes all of limit, the next step reads the same page again,
// which may hold more.
func (c *circle) step(ctx context.Context, limit int64) (page Page, err error) {
	if !c.begun {
		// Also with an error: the next call, which may be as short, need not choose again.
		c.from, err = c.Random(ctx)
		c.at, c.begun = c.from, true
		if err != nil {
			return Page{}, err
		}
	}
	page, err = c.Page(ctx, c.at, limit)
	if err != nil {
		return Page{Removed: page.Removed}, err
	}
	switch {
	case page.Removed == limit:
		page.Visited = 0
	case page.End:
		c.closed = c.wrapped || c.from.Compare(Cursor{}) == 0
		c.at, c.wrapped = Cursor{}, true
	default:
		c.at = page.Last
		c.closed = c.wrapped && c.at.Compare(c.from) >= 0
	}
	return page, nil
}

// rest waits for d, or until the context ends.
func rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

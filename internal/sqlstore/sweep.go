package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/sqlimit/limiter"
)

const (
	// PageSize is the most rows that one statement of a sweep reads or removes, so
	// that it holds locks for milliseconds and is never in anybody's way. With 1,000
	// the p99 of others rose to 2.8 times what it is without a sweep.
	PageSize = 250
	// longestPause bounds how long a sweep rests after a statement.
	longestPause = 100 * time.Millisecond
)

// Cursor is a place in a table's primary key: after it is where a sweep goes on.
type Cursor struct {
	Name string
	Key  []byte
}

// Page is what one statement of a sweep did: it removed rows among the next ones
// after the cursor, of which the last is Last; Read tells how many it looked at.
type Page struct {
	Removed int64
	Read    int
	Last    Cursor
}

// SweepPage looks at up to PageSize rows after a cursor and removes up to limit
// of them: those expired an hour ago, checked again as they are removed.
type SweepPage func(ctx context.Context, after Cursor, limit int) (Page, error)

// Sweep removes up to limit rows, table by table, in order of the primary key. Between
// statements it rests for as long as the last one took: others use the database too. If the context ends or a statement fails it returns what was removed so far.
func Sweep(ctx context.Context, limit int, tables ...SweepPage) (removed int64, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("%w: Sweep of at most %d keys; pass at least 1", limiter.ErrInvalid, limit)
	}
	for _, sweep := range tables {
		var after Cursor
		var took time.Duration
		for removed < int64(limit) {
			rest(ctx, min(took, longestPause))
			began := time.Now()
			page, err := sweep(ctx, after, int(min(PageSize, int64(limit)-removed)))
			if err != nil {
				return removed, err
			}
			removed += page.Removed
			if page.Read < PageSize {
				break
			}
			after, took = page.Last, time.Since(began)
		}
	}
	return removed, nil
}

// rest waits for d, or until the context ends, which the next statement will tell.
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

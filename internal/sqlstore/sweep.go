package sqlstore

import (
	"context"
	"fmt"

	"github.com/sqlimit/limiter"
)

// PageSize is the most rows that one statement of a sweep reads or removes, so
// that it holds locks for milliseconds and is never in anybody's way.
const PageSize = 1000

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

// Sweep removes up to limit rows, table by table, in order of the primary key.
// If the context ends or a statement fails it returns what was removed so far.
func Sweep(ctx context.Context, limit int, tables ...SweepPage) (removed int64, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("%w: Sweep of at most %d keys; pass at least 1", limiter.ErrInvalid, limit)
	}
	for _, sweep := range tables {
		var after Cursor
		for removed < int64(limit) {
			page, err := sweep(ctx, after, int(min(PageSize, int64(limit)-removed)))
			if err != nil {
				return removed, err
			}
			removed += page.Removed
			if page.Read < PageSize {
				break
			}
			after = page.Last
		}
	}
	return removed, nil
}

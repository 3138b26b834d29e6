package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"math/rand/v2"
	"slices"

	"github.com/sqlimit/limiter/internal/sweep"
)

// lastName sorts after the name of any limiter, which has letters, digits and punctuation.
const lastName = "\x7f"

// randomCursor returns the position where a sweep starts. SQLite cannot find the n-th row without
// reading all rows before it. So randomCursor divides the keys in two, continues with one part, and
// stops when both parts are smaller than a page. Clients choose the keys, so a part smaller than a
// page is set aside together with a page of the other part, and seldom chosen. A client then needs
// a page of rows for each step, and each step makes its rows at most twice as likely.
func (s *Store) randomCursor(ctx context.Context, t *table) (after sweep.Cursor, err error) {
	const page, seldom = sweep.PageSize, 16
	first, err := s.keys(ctx, t.page, "", []byte{}, int64(0), int64(1))
	if err != nil {
		return after, err
	}
	last, err := s.keys(ctx, t.before, lastName, []byte{}, int64(1))
	if err != nil || len(first) == 0 || len(last) == 0 {
		return after, err
	}
	// The rows to choose from lie in [lo, hi] and come after the cursor.
	for lo, hi := first[0], last[0]; lo.Compare(hi) < 0; {
		middle := between(lo, hi)
		outside := func(c sweep.Cursor) bool { return c.Compare(lo) < 0 || c.Compare(hi) > 0 }
		below, err := s.keys(ctx, t.before, middle.Name, keyOf(middle), int64(page))
		if err != nil {
			return after, err
		}
		above, err := s.keys(ctx, t.page, middle.Name, keyOf(middle), int64(0), int64(page))
		if err != nil {
			return after, err
		}
		below, above = slices.DeleteFunc(below, outside), slices.DeleteFunc(above, outside)
		fewBelow, fewAbove := len(below) < page, len(above) < page
		switch {
		case !fewBelow && !fewAbove && rand.IntN(2) == 0:
			hi = below[0]
		case !fewBelow && !fewAbove:
			after, lo = middle, above[0]
		case !fewAbove && rand.IntN(seldom) > 0:
			after, lo = above[page-1], above[page-1]
		case !fewBelow && rand.IntN(seldom) > 0:
			hi = below[page-1]
		case rand.IntN(2) == 0:
			return middle, nil
		case !fewBelow:
			return below[page-1], nil
		default:
			return after, nil
		}
	}
	return after, nil
}

// between returns a position after lo and not after hi: their common prefix and one more byte.
func between(lo, hi sweep.Cursor) sweep.Cursor {
	if lo.Name != hi.Name {
		return sweep.Cursor{Name: string(divide([]byte(lo.Name), []byte(hi.Name)))}
	}
	return sweep.Cursor{Name: lo.Name, Key: divide(lo.Key, hi.Key)}
}

func divide(lo, hi []byte) []byte {
	shared, least := 0, 0
	for shared < len(lo) && lo[shared] == hi[shared] {
		shared++
	}
	if shared < len(lo) {
		least = int(lo[shared]) + 1
	}
	b := least + rand.IntN(int(hi[shared])-least+1)
	return append(bytes.Clone(hi[:shared]), byte(b))
}

// keys runs a statement that reads positions.
func (s *Store) keys(ctx context.Context, st statement, args ...any) (found []sweep.Cursor, err error) {
	reader, _, err := s.pools()
	if err != nil {
		return nil, err
	}
	err = attempt(ctx, func(ctx context.Context) error {
		found = found[:0]
		return reader.query(ctx, st, func(columns []driver.Value) error {
			found = append(found, cursor(columns))
			return nil
		}, args...)
	})
	return found, err
}

// Package audit writes down every change of the limiter's tables, by triggers that a test
// adds to them. A row is locked while its trigger runs, so the order in which the changes
// of a key are written down is the one in which they were committed.
package audit

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/history"
)

// Log is the audit of a database.
type Log interface {
	// Read returns what was written down since the log was made or cleared, and the rows
	// that the tables have now. Nobody may write meanwhile.
	Read(ctx context.Context) ([]history.Transition, map[history.Key]limiter.Row, error)
	// Clear empties the tables and the log.
	Clear(ctx context.Context) error
	// Seed adds rows to the tables as if they had been there from the beginning: the log
	// does not tell of them.
	Seed(ctx context.Context, rows map[history.Key]limiter.Row) error
	// Close gives back what the log needs. The triggers stay.
	Close() error
}

// left selects the rows that the tables have, in the form of the log.
const left = `SELECT 0, limiter, key, full_at, 0, 0, at, step, capacity FROM limiter_token_buckets
	UNION ALL SELECT 1, limiter, key, 0, window_start, used, at, win, lim FROM limiter_fixed_windows`

// rows is what either driver answers.
type rows interface {
	Next() bool
	Scan(into ...any) error
}

// leftIn reads the answer to left, until there is none or no more.
func leftIn(answer rows) (map[history.Key]limiter.Row, error) {
	left := map[history.Key]limiter.Row{}
	for answer.Next() {
		var k history.Key
		var windows int64
		var key []byte
		var r limiter.Row
		if err := answer.Scan(&windows, &k.Name, &key, &r.FullAt, &r.Start, &r.Used, &r.At, &r.Period, &r.Limit); err != nil {
			return nil, err
		}
		k.Window, k.Key = windows == 1, string(key)
		left[k] = r
	}
	return left, nil
}

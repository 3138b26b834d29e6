package sqlite_test

import (
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/sqlite"
)

func TestOperationsOnAnyRow(t *testing.T) {
	t.Parallel()
	store := openPath(t, ":memory:")
	rowtest.Run(t, store, rows{store}, 600)
	checkTypes(t, store)
}

func TestOperationsOfOneKeyThatMeet(t *testing.T) {
	t.Parallel()
	opened(t, func(t *testing.T, store *sqlite.Store, _ string) { rowtest.RunMixed(t, store, rows{store}, 300) })
}

// rows are those of a Store, for rowtest.
type rows struct{ *sqlite.Store }

func (r rows) Insert(t *testing.T, op limiter.Op, row limiter.Row) { insert(t, r.Store, op, row) }

func (r rows) Read(t *testing.T, op limiter.Op) limiter.Row { return read(t, r.Store, op) }

func insert(t *testing.T, store *sqlite.Store, op limiter.Op, row limiter.Row) {
	t.Helper()
	query := `INSERT INTO limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted) VALUES (?, ?, ?, ?, ?, ?, 1)`
	args := []any{op.Name, []byte(op.Key), row.FullAt, row.At, row.Period, row.Limit}
	if _, ok := op.Policy.(limiter.FixedWindow); ok {
		query = `INSERT INTO limiter_fixed_windows (limiter, key, window_start, used, at, win, lim, granted) VALUES (?, ?, ?, ?, ?, ?, ?, 1)`
		args = []any{op.Name, []byte(op.Key), row.Start, row.Used, row.At, row.Period, row.Limit}
	}
	if _, err := store.DB().ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, store *sqlite.Store, op limiter.Op) (row limiter.Row) {
	t.Helper()
	query := `SELECT full_at, 0, 0, at, step, capacity FROM limiter_token_buckets WHERE limiter = ? AND key = ?`
	if _, ok := op.Policy.(limiter.FixedWindow); ok {
		query = `SELECT 0, window_start, used, at, win, lim FROM limiter_fixed_windows WHERE limiter = ? AND key = ?`
	}
	rows, err := store.DB().QueryContext(t.Context(), query, op.Name, []byte(op.Key))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&row.FullAt, &row.Start, &row.Used, &row.At, &row.Period, &row.Limit); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return row
}

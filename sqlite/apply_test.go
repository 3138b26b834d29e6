package sqlite_test

import (
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

func TestOperationsOnAnyRow(t *testing.T) {
	t.Parallel()
	store := openPath(t, ":memory:")
	count := 600
	if testing.Short() || testenv.Race { // one goroutine asks, so the race detector sees nothing here
		count = 100
	}
	rowtest.Run(t, store, rows{store}, count)
	checkTypes(t, store)
}

func TestMixedOperationsOfAKey(t *testing.T) {
	t.Parallel()
	opened(t, func(t *testing.T, store *sqlite.Store, _ string) { rowtest.RunMixed(t, store, rows{store}, 300) })
}

// rows are those of a Store, for rowtest.
type rows struct{ *sqlite.Store }

func (r rows) Insert(t *testing.T, op limiter.Op, row limiter.Row) { insert(t, r.Store, op, row) }

func (r rows) Read(t *testing.T, op limiter.Op) limiter.Row { return read(t, r.Store, op) }

// DecidesThisWindow says that a statement decides a take in the window that the clock is in, and Op.Apply one
// in a later window.
func (rows) DecidesThisWindow() {}

// statements makes the statements of tests.
var statements = rowtest.SQL{SQLite: true}

func insert(t *testing.T, store *sqlite.Store, op limiter.Op, row limiter.Row) {
	t.Helper()
	query, args := statements.Insert(rowtest.TableOf(op.Policy), op.Name, op.Key, row)
	execute(t, store, query, args...)
}

func read(t *testing.T, store *sqlite.Store, op limiter.Op) (row limiter.Row) {
	t.Helper()
	table := rowtest.TableOf(op.Policy)
	rows, err := store.DB().QueryContext(t.Context(), statements.Select(table)+" WHERE limiter = ? AND key = ?", op.Name, []byte(op.Key))
	must(t, err)
	must(t, rows.Err())
	defer rows.Close()
	must(t, rowtest.Read(table, rows, func(_, _ string, read limiter.Row) { row = read }))
	return row
}

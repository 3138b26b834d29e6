package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	driversqlite "modernc.org/sqlite"

	"github.com/sqlimit/limiter/sqlite"
)

// flaky opens connections whose next query fails with SQLITE_BUSY after one row, if fails is set.
type flaky struct {
	driver.Connector
	fails *bool
}

type (
	flakyConn struct {
		driver.Conn
		fails *bool
	}
	flakyStmt struct {
		driver.Stmt
		fails *bool
	}
	flakyRows struct {
		driver.Rows
		fails *bool
		read  int
	}
)

func (f flaky) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := f.Connector.Connect(ctx)
	return flakyConn{conn, f.fails}, err
}

func (c flakyConn) Prepare(query string) (driver.Stmt, error) {
	stmt, err := c.Conn.Prepare(query)
	return flakyStmt{stmt, c.fails}, err
}

func (s flakyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	return &flakyRows{rows, s.fails, 0}, err
}

func (r *flakyRows) Next(to []driver.Value) error {
	if r.read++; r.read == 2 && *r.fails {
		*r.fails = false
		return &coded{5, "database is locked"}
	}
	return r.Rows.Next(to)
}

// A read that fails after a part of its rows begins anew, and forgets that part.
func TestReadThatFailsInItsMiddle(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	execute(t, store, `INSERT INTO limiter_overrides (limiter, key, kind, capacity, period)
		VALUES ('l', x'01', 'window', 1, 1000000), ('l', x'02', 'window', 1, 1000000), ('l', x'03', 'window', 1, 1000000);
		INSERT INTO limiter_token_buckets VALUES ('l', x'01', 1, 1, 1000, 1, 1), ('l', x'02', 1, 1, 1000, 1, 1), ('l', x'03', 1, 1, 1000, 1, 1)`)
	base, err := driversqlite.NewConnector("file:" + fileOf(t, store))
	must(t, err)
	var fails bool
	db := sql.OpenDB(flaky{base, &fails})
	defer db.Close()
	again, err := sqlite.New(db)
	must(t, err)
	fails = true
	if list, err := again.Overrides(t.Context(), "l", 10); err != nil || len(list) != 3 || fails {
		t.Errorf("Overrides = %+v, %v; want three", list, err)
	}
	must(t, again.ContinueSweep(sweepStart))
	fails = true
	n, err := again.Sweep(t.Context(), 10)
	if visited := again.SweepProgress().Visited; err != nil || n != 3 || visited != 3 || fails {
		t.Errorf("Sweep = %d, %v, and visited %d rows; want 3 and 3", n, err, visited)
	}
}

// fileOf returns the path of the file of a Store.
func fileOf(t testing.TB, store *sqlite.Store) (path string) {
	t.Helper()
	must(t, store.DB().QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list").Scan(&path))
	return path
}

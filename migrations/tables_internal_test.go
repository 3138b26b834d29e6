package migrations

import (
	"database/sql"
	"errors"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/tables"
)

func TestFieldsScanLists(t *testing.T) {
	t.Parallel()
	table := Table{table: &tables.Table{Fields: func(to []any, row *limiter.Row) []any {
		return append(to, &row.Start, rowlist.Part{Row: &row.List, Of: 1})
	}}}
	want := limiter.Row{Start: 7, List: rowlist.Of(1, -2, 1<<62)}
	scan := func(t *testing.T, db *sql.DB, query string) (row limiter.Row, err error) {
		t.Helper()
		err = db.QueryRowContext(t.Context(), query).Scan(table.Fields(&row)...)
		return row, err
	}
	check := func(t *testing.T, driver, dsn, full, empty, wrong string) {
		t.Helper()
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if row, err := scan(t, db, full); err != nil || row != want {
			t.Errorf("%s: %+v, %v; want %+v", full, row, err, want)
		}
		if row, err := scan(t, db, empty); err != nil || row != (limiter.Row{Start: 7}) {
			t.Errorf("%s: %+v, %v; want an empty list", empty, row, err)
		}
		if _, err := scan(t, db, wrong); !errors.Is(err, limiter.ErrMisconfigured) {
			t.Errorf("%s: %v, want ErrMisconfigured", wrong, err)
		}
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		check(t, "sqlite", ":memory:", "SELECT 7, x'0000000000000001fffffffffffffffe4000000000000000'", "SELECT 7, x''", "SELECT 7, 1")
	})
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		t.Parallel()
		check(t, "pgx", server.Database(t), "SELECT 7, '{1,-2,4611686018427387904}'::bigint[]", "SELECT 7, '{}'::bigint[]", "SELECT 7, '{{1},{2}}'::bigint[]")
	})
}

package migrations

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	_ "modernc.org/sqlite"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
)

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	testenv.Must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestVersionStore(t *testing.T) {
	t.Parallel()
	db := openDB(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "limiter.db"))
	store, err := newVersionStore(config{dialect: SQLite})
	testenv.Must(t, err)
	one := database.InsertRequest{Version: 1}
	testenv.Must(t, store.Insert(t.Context(), db, one))
	testenv.Must(t, store.drop(t.Context(), db)) // must not: a version is recorded
	if err := store.Insert(t.Context(), db, one); !errors.Is(err, errRaced) {
		t.Errorf("second Insert: %v, want errRaced", err)
	}
	testenv.Must(t, store.Delete(t.Context(), db, 1))
	if err := store.Delete(t.Context(), db, 1); !errors.Is(err, errRaced) {
		t.Errorf("second Delete: %v, want errRaced", err)
	}
	if state, err := store.applied(t.Context(), db); err != nil || state != "versions 0" {
		t.Errorf("applied: %q, %v; want versions 0", state, err)
	}
}

func TestGoMigrationsOfTheApplication(t *testing.T) {
	// Not in parallel: goose's registry is a variable, which every migration reads.
	theirs := func(context.Context, *sql.Tx) error { return errors.New("somebody else's migration ran") }
	goose.AddNamedMigrationContext("00002_theirs.go", theirs, theirs)
	t.Cleanup(goose.ResetGlobalMigrations)
	db := openDB(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "limiter.db"))
	testenv.Must(t, Up(t.Context(), SQLite, db))
	if list, err := Status(t.Context(), SQLite, db); err != nil || len(list) != 1 {
		t.Errorf("Status: %v, %v; want one migration", list, err)
	}
	testenv.Must(t, Down(t.Context(), SQLite, db))
}

func TestFieldsScanLists(t *testing.T) {
	t.Parallel()
	table := Table{table: &tables.Table{Fields: func(to []any, row *limiter.Row) []any {
		return append(to, &row.Start, rowlist.Part{Row: &row.List, Of: 1})
	}}}
	check := func(t *testing.T, db *sql.DB, full, empty, wrong string) {
		t.Helper()
		scan := func(query string) (row limiter.Row, err error) {
			err = db.QueryRowContext(t.Context(), query).Scan(table.Fields(&row)...)
			return row, err
		}
		for query, want := range map[string]limiter.Row{full: {Start: 7, List: rowlist.Of(1, -2, 1<<62)}, empty: {Start: 7}} {
			if row, err := scan(query); err != nil || row != want {
				t.Errorf("%s: %+v, %v; want %+v", query, row, err, want)
			}
		}
		if _, err := scan(wrong); !errors.Is(err, limiter.ErrMisconfigured) {
			t.Errorf("%s: %v, want ErrMisconfigured", wrong, err)
		}
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		check(t, openDB(t, "sqlite", ":memory:"), "SELECT 7, x'0000000000000001fffffffffffffffe4000000000000000'", "SELECT 7, x''", "SELECT 7, 1")
	})
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		t.Parallel()
		check(t, openDB(t, "pgx", server.Database(t)), "SELECT 7, '{1,-2,4611686018427387904}'::bigint[]", "SELECT 7, '{}'::bigint[]", "SELECT 7, '{{1},{2}}'::bigint[]")
	})
}

package prove_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/sqlite"
)

// newFile returns the path of a new database with its tables, which nobody has open.
func newFile(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "of its own") // so that it can be renamed
	must(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "limiter.db")
	makeTables(t, path)
	return path
}

func makeTables(t testing.TB, path string) {
	t.Helper()
	store := openFile(t, path)
	defer store.Close()
	must(t, migrations.Up(t.Context(), migrations.SQLite, store.DB()))
}

// openFile opens a store, to be closed by the caller.
func openFile(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(path)
	must(t, err)
	return store
}

// lookInto opens a database beside the stores that may have it open, and neither writes
// nor tidies up: a log that a killed process left is there for the next one to find.
func lookInto(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?mode=ro&_busy_timeout=10000")
	must(t, err)
	db.SetMaxOpenConns(1) // what it looked into first is what it looks into
	return db
}

// storedIn returns what is stored of each key, as of now: for ledger.Compare.
func storedIn(t testing.TB, db *sql.DB) map[ledger.ID]int64 {
	t.Helper()
	stored := map[ledger.ID]int64{}
	for _, table := range tables.All {
		rows, err := db.QueryContext(t.Context(), rowtest.SQL{SQLite: true}.Select(table))
		if err == nil {
			defer rows.Close()
			err = errors.Join(rowtest.Read(table, rows, func(name, key string, row limiter.Row) {
				stored[ledger.ID{Kind: table.Kind, Limiter: name, Key: key}] = rowtest.Used(table.Kind, row, time.Now().UnixNano())
			}), rows.Err())
		}
		must(t, err)
	}
	return stored
}

// intact sees to it that SQLite finds nothing wrong with a file.
func intact(t testing.TB, db *sql.DB) {
	t.Helper()
	var found string
	if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&found); err != nil || found != "ok" {
		t.Errorf("the database is damaged: %s, %v", found, err)
	}
}

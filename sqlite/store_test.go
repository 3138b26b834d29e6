package sqlite_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/sqlite"
)

var day = limiter.TokenBucket{Capacity: 2, Refill: 2, Interval: 48 * time.Hour}

func dump(t *testing.T, store *sqlite.Store, query string, args ...any) string {
	t.Helper()
	rows, err := store.DB().QueryContext(t.Context(), query, args...)
	must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(t, err)
	var b strings.Builder
	for rows.Next() {
		row, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			dest[i] = &row[i]
		}
		must(t, rows.Scan(dest...))
		fmt.Fprintln(&b, row...)
	}
	must(t, rows.Err())
	return b.String()
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, statement string
		want            string // what the error says
	}{
		{"all is there", "SELECT 1", "<nil>"},
		{"made without goose", "DROP TABLE limiter_goose_version", "<nil>"},
		{"a column is missing", "DROP VIEW limiter_remaining; ALTER TABLE limiter_fixed_windows RENAME COLUMN granted TO granter", "no such column: granted"},
		{"no overrides", "DROP TABLE limiter_overrides", "no such table: limiter_overrides"},
		{"a column is missing in overrides", "ALTER TABLE limiter_overrides DROP COLUMN note", "no such column: note"},
		{"no migration is noted", "DELETE FROM limiter_goose_version WHERE version_id > 0", "version 0 of the tables, and this release needs 1"},
		{"not the table of goose", "ALTER TABLE limiter_goose_version RENAME COLUMN version_id TO version", "no such column: version_id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := openFile(t)
			execute(t, store, c.statement)
			err := store.Check(t.Context())
			testenv.Equal(t, errors.Is(err, limiter.ErrMisconfigured), err != nil, err, "is of the class")
			testenv.Contains(t, fmt.Sprint(err), c.want)
		})
	}
}

// A migration that the store needs must raise SchemaVersion. Otherwise an operation fails here.
func TestSchemaVersion(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(migrations.FS, "sqlite/*.sql")
	must(t, err)
	store := openOnly(t, filepath.Join(t.TempDir(), "limiter.db"))
	for _, file := range files[:sqlite.SchemaVersion] { // in order of their names
		text, err := fs.ReadFile(migrations.FS, file)
		must(t, err)
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		execute(t, store, up)
	}
	must(t, store.Check(t.Context()))
	for _, policy := range []limiter.Policy{day, limiter.FixedWindow{Limit: 5, Window: time.Hour, CountRejected: true}} {
		allow(t, newLimiter(t, store, "l", policy), "k")
	}
	must(t, testenv.ErrorOf(store.Sweep(t.Context(), 1)))
	must(t, testenv.ErrorOf(store.Overrides(t.Context(), "l", 1)))
}

func TestErrorsOfOverrides(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	want := func(store *sqlite.Store, class error, limit int, advice string) {
		t.Helper()
		_, err := store.Overrides(t.Context(), "l", limit)
		if !errors.Is(err, class) || !strings.Contains(err.Error(), advice) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Overrides: %v, want %v with %q and no key", err, class, advice)
		}
	}
	want(store, limiter.ErrInvalid, 0, "at least 1")
	execute(t, store, `DROP TABLE limiter_overrides`)
	want(store, limiter.ErrMisconfigured, 1, "migrations.Up(ctx, migrations.SQLite, store.DB()), "+
		"or goose: see https://github.com/sqlimit/limiter/blob/main/docs/operations.md#create-the-tables")
	// Without the CHECK of the migration.
	execute(t, store, `CREATE TABLE limiter_overrides (limiter TEXT, key BLOB, kind TEXT, capacity INTEGER, refill INTEGER, period INTEGER, note TEXT, expires_at INTEGER);
		INSERT INTO limiter_overrides (limiter, key, kind, capacity, period) VALUES ('l', 'secret', 'later', 1, 1000000)`)
	want(store, limiter.ErrMisconfigured, 1, `"later"`)

	other := openOnly(t, filepath.Join(t.TempDir(), "closed.db"))
	must(t, other.Close())
	want(other, limiter.ErrNotApplied, 1, "closed")
}

// Every statement can be pasted into sqlite3, and finds its rows by the primary key.
func TestStatements(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	for name, text := range sqlite.Texts {
		t.Run(string(name), func(t *testing.T) {
			// The driver prepares what follows a statement anew each time. A comment at the end would
			// hide what others append.
			lines := strings.Split(text, "\n")
			testenv.Equal(t, strings.Contains(text, "/*"), false, text, "has a placeholder")
			if last := lines[len(lines)-1]; !strings.HasSuffix(last, ";") || strings.Contains(last, "--") {
				t.Errorf("ends with %q; want the end of a statement", last)
			}
			testenv.Equal(t, strings.HasPrefix(text, "-- "), true, "begins with a comment that says what it does")
			plan := dump(t, store, "EXPLAIN QUERY PLAN "+text, make([]any, 20)...) // enough for all parameters
			testenv.Equal(t, strings.Contains(plan, "SCAN limiter") && name != "lock", false, plan, "reads a whole table")
		})
	}
}

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

func dump(t *testing.T, store *sqlite.Store, query string) string {
	t.Helper()
	rows, err := store.DB().QueryContext(t.Context(), query)
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
		want            error
	}{
		{"all is there", "SELECT 1", nil},
		{"made without goose", "DROP TABLE limiter_goose_version", nil},
		{"a column is missing", "DROP VIEW limiter_remaining; ALTER TABLE limiter_fixed_windows RENAME COLUMN granted TO granter", limiter.ErrMisconfigured},
		{"no overrides", "DROP TABLE limiter_overrides", limiter.ErrMisconfigured},
		{"a column is missing in overrides", "ALTER TABLE limiter_overrides DROP COLUMN note", limiter.ErrMisconfigured},
		{"no migration is noted", "DELETE FROM limiter_goose_version WHERE version_id > 0", limiter.ErrMisconfigured},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := openFile(t)
			execute(t, store, c.statement)
			if err := store.Check(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("Check: %v, want %v", err, c.want)
			}
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

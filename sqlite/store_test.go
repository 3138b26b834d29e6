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

func TestStoredRows(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	ctx, now := t.Context(), t0.UnixNano()
	bucket := newLimiter(t, store, "b", day, at(t0))
	window := newLimiter(t, store, "w", limiter.FixedWindow{Limit: 3, Window: 24 * time.Hour}, at(t0))
	counted := newLimiter(t, store, "c", limiter.FixedWindow{Limit: 1, Window: 24 * time.Hour, CountRejected: true}, at(t0))
	key := "k\x00\xff'"
	for _, l := range []*limiter.Limiter{bucket, window} {
		must(t, testenv.ErrorOf(l.AllowN(ctx, key, 2)))
	}
	for range 3 {
		must(t, testenv.ErrorOf(counted.Allow(ctx, key)))
	}
	const h24 = int64(24 * time.Hour)
	wants := map[string]string{
		`SELECT limiter, hex(key), full_at, at, step, capacity, granted FROM limiter_token_buckets`: fmt.Sprintln(
			"b", "6B00FF27", now+2*h24, now, h24, 2, 1),
		`SELECT limiter, hex(key), window_start, win, lim, used, at, granted FROM limiter_fixed_windows ORDER BY limiter`: fmt.Sprintln(
			"c", "6B00FF27", now-now%h24, h24, 1, 3, now, 1) + fmt.Sprintln("w", "6B00FF27", now-now%h24, h24, 3, 2, now, 1),
	}
	for query, want := range wants {
		if got := dump(t, store, query); got != want {
			t.Errorf("%s:\n got %s\nwant %s", query, got, want)
		}
	}
}

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

func TestMissingTables(t *testing.T) {
	t.Parallel()
	store := openOnly(t, filepath.Join(t.TempDir(), "empty.db"))
	_, err := newLimiter(t, store, "l", day).Allow(t.Context(), "secret-key")
	for what, err := range map[string]error{"Allow": err, "Check": store.Check(t.Context())} {
		if !errors.Is(err, limiter.ErrMisconfigured) {
			t.Fatalf("%s: %v; want ErrMisconfigured", what, err)
		}
		for _, advice := range []string{
			"migrations.Up(ctx, migrations.SQLite, store.DB())",
			"or goose: see https://github.com/sqlimit/limiter/blob/main/docs/operations.md#create-the-tables",
		} {
			if !strings.Contains(err.Error(), advice) {
				t.Errorf("%s: %q does not name %q", what, err, advice)
			}
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %q holds the key", what, err)
		}
	}
	// The Store works as soon as there are tables.
	migrate(t, store)
	allow(t, newLimiter(t, store, "l", day), "key")
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

func TestCheckWritesNothing(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]*sqlite.Store{"file": openFile(t), "own pool": newStore(t, openPool(t, ""))} {
		conn, err := store.DB().Conn(t.Context())
		must(t, err)
		defer conn.Close()
		version := func() (n int64) {
			t.Helper()
			must(t, conn.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&n))
			return n
		}
		before := version()
		must(t, store.Check(t.Context()))
		if after := version(); after != before {
			t.Errorf("%s: data_version was %d before Check, is %d after it", name, before, after)
		}
		allow(t, newLimiter(t, store, "l", day), "key")
		if after := version(); after == before {
			t.Errorf("%s: data_version does not tell of a take", name)
		}
	}
}

package sqlite_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/sqlite"
)

var day = limiter.TokenBucket{Capacity: 2, Refill: 2, Interval: 48 * time.Hour}

func TestTheStoredRows(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	ctx, now := t.Context(), t0.UnixNano()
	bucket := newLimiter(t, store, "b", day, at(t0))
	window := newLimiter(t, store, "w", limiter.FixedWindow{Limit: 3, Window: 24 * time.Hour}, at(t0))
	counted := newLimiter(t, store, "c", limiter.FixedWindow{Limit: 1, Window: 24 * time.Hour, CountRejected: true}, at(t0))
	key := "k\x00\xff'"
	if _, err := bucket.AllowN(ctx, key, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := window.AllowN(ctx, key, 2); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := counted.Allow(ctx, key); err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for rows.Next() {
		row, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			dest[i] = &row[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, row...)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestMissingTables(t *testing.T) {
	t.Parallel()
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "empty.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	_, err = newLimiter(t, store, "l", day).Allow(t.Context(), "secret-key")
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
	// What failed for want of tables works when they are there.
	migrate(t, store)
	if r, err := newLimiter(t, store, "l", day).Allow(t.Context(), "key"); err != nil || !r.Allowed {
		t.Errorf("Allow = %+v, %v; want it allowed", r, err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	exec := func(store *sqlite.Store, statements ...string) error {
		for _, st := range statements {
			if _, err := store.DB().ExecContext(t.Context(), st); err != nil {
				t.Fatalf("%s: %v", st, err)
			}
		}
		return store.Check(t.Context())
	}
	for _, c := range []struct {
		name       string
		statements []string
		want       error
	}{
		{"all is there", nil, nil},
		{"made without goose", []string{"DROP TABLE limiter_goose_version"}, nil},
		{"a column is missing", []string{"DROP VIEW limiter_remaining", "ALTER TABLE limiter_fixed_windows RENAME COLUMN granted TO granter"}, limiter.ErrMisconfigured},
		{"no overrides", []string{"DROP TABLE limiter_overrides"}, limiter.ErrMisconfigured},
		{"a column is missing in overrides", []string{"ALTER TABLE limiter_overrides DROP COLUMN note"}, limiter.ErrMisconfigured},
		{"no migration is noted", []string{"DELETE FROM limiter_goose_version WHERE version_id > 0"}, limiter.ErrMisconfigured},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := exec(openFile(t), c.statements...); !errors.Is(err, c.want) {
				t.Errorf("Check: %v, want %v", err, c.want)
			}
		})
	}
}

// A migration that the store needs must raise SchemaVersion. Otherwise an operation fails here.
func TestStoreNeedsTheVersionThatCheckWants(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(migrations.FS, "sqlite/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "limiter.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, file := range files[:sqlite.SchemaVersion] { // in order of their names
		text, err := fs.ReadFile(migrations.FS, file)
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		if _, err := store.DB().ExecContext(t.Context(), up); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	for _, policy := range []limiter.Policy{day, limiter.FixedWindow{Limit: 5, Window: time.Hour, CountRejected: true}} {
		if _, err := newLimiter(t, store, "l", policy).Allow(t.Context(), "k"); err != nil {
			t.Errorf("Allow: %v", err)
		}
	}
	if _, err := store.Sweep(t.Context(), 1); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	if _, err := store.Overrides(t.Context(), "l", 1); err != nil {
		t.Errorf("Overrides: %v", err)
	}
}

func TestCheckBesideAWriterDoesNotWait(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	conn := lock(t, store)
	defer conn.Close()
	begin := time.Now()
	if err := store.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if d := time.Since(begin); d > 4*time.Second { // a take would wait for 5 s
		t.Errorf("Check took %v", d)
	}
}

func TestCheckWritesNothing(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func() *sqlite.Store{
		"file":     func() *sqlite.Store { return openFile(t) },
		"own pool": func() *sqlite.Store { return newStore(t, openPool(t, "")) },
	} {
		store := open()
		conn, err := store.DB().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		version := func() (n int64) {
			t.Helper()
			if err := conn.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := version()
		if err := store.Check(t.Context()); err != nil {
			t.Errorf("%s: Check: %v", name, err)
		}
		if after := version(); after != before {
			t.Errorf("%s: data_version was %d before Check, is %d after it", name, before, after)
		}
		if _, err := newLimiter(t, store, "l", day).Allow(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
		if after := version(); after == before {
			t.Errorf("%s: data_version does not tell of a take", name)
		}
	}
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"garbage": garbage, "a directory": dir, "no directory": filepath.Join(dir, "no", "such.db")} {
		store, err := sqlite.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if _, err := newLimiter(t, store, "l", day).Allow(t.Context(), "key"); !errors.Is(err, limiter.ErrMisconfigured) {
			t.Errorf("%s: Allow: %v, want ErrMisconfigured", name, err)
		}
		if err := store.Check(t.Context()); !errors.Is(err, limiter.ErrMisconfigured) {
			t.Errorf("%s: Check: %v, want ErrMisconfigured", name, err)
		}
	}
}

// The database is full when no page can be added; what is there can still be changed.
func TestAFullDatabase(t *testing.T) {
	t.Parallel()
	store := openPath(t, ":memory:")
	l := newLimiter(t, store, "l", day, at(t0))
	if _, err := l.Allow(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.DB().ExecContext(t.Context(), "PRAGMA max_page_count = 1"); err != nil {
		t.Fatal(err)
	}
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		_, err = l.Allow(t.Context(), fmt.Sprint(i, strings.Repeat("-", 200)))
	}
	if !errors.Is(err, limiter.ErrNotApplied) {
		t.Errorf("Allow on a full database: %v, want ErrNotApplied", err)
	}
	if r, err := l.Allow(t.Context(), "first"); err != nil || !r.Allowed || r.Remaining != 0 {
		t.Errorf("Allow of a key that is there = %+v, %v; want it allowed", r, err)
	}
}

func TestMigrationsTakenBackAndAppliedAgain(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	l := newLimiter(t, store, "l", day, at(t0))
	for range 2 {
		if r, err := l.AllowN(t.Context(), "key", 2); err != nil || !r.Allowed {
			t.Fatalf("AllowN(2) = %+v, %v; want it allowed", r, err)
		}
		if err := migrations.Down(t.Context(), migrations.SQLite, store.DB()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Allow(t.Context(), "key"); !errors.Is(err, limiter.ErrMisconfigured) {
			t.Fatalf("Allow without tables: %v, want ErrMisconfigured", err)
		}
		migrate(t, store)
	}
}

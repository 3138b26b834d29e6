package sqlite_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/sqlite"
)

func TestOpenPath(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"plain.db", "with space.db", "question?mode=memory.db", "hash#fragment.db", "percent%41.db", "amp&_query_only=1.db",
		"plus+.db", "quote's\".db", "umlaut-äöü-日本.db", ":memory:.db", "semi;colon.db", "back\\slash.db", "no-extension", "bad\xff.db",
	} {
		if runtime.GOOS == "windows" && strings.ContainsAny(name, `?":\`) {
			continue // no file can be called so there
		}
		path := filepath.Join(t.TempDir(), name)
		store := openPath(t, path)
		allow(t, newLimiter(t, store, "l", day), "key")
		must(t, testenv.ErrorOf(os.Stat(path)))
		testenv.Equal(t, dump(t, store, "PRAGMA journal_mode"), "wal\n", name, "journal_mode")
	}
	testenv.ErrorIs(t, testenv.ErrorOf(sqlite.New(nil)), limiter.ErrInvalid, "New(nil)")
	for path, advice := range map[string]string{"": "the path is empty", "file:app.db?mode=ro": "pass the path alone", "sqlite:app.db": "pass the path alone", "nul\x00.db": "zero byte"} {
		err := testenv.ErrorOf(sqlite.Open(path))
		testenv.ErrorIs(t, err, limiter.ErrInvalid, path)
		testenv.Contains(t, fmt.Sprint(path, ": ", err), advice)
	}
}

// Not parallel: it counts goroutines.
func TestConstructorsDoNothing(t *testing.T) {
	dir := t.TempDir()
	before := runtime.NumGoroutine()
	for _, path := range []string{filepath.Join(dir, "lazy.db"), ":memory:"} {
		store, err := sqlite.Open(path)
		must(t, err)
		newLimiter(t, store, "l", day)
		must(t, store.Close())
	}
	testenv.Equal(t, max(before, runtime.NumGoroutine()), before, "goroutines")
	entries, err := os.ReadDir(dir)
	must(t, err)
	testenv.Equal(t, len(entries), 0, "files")
}

func TestClose(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "closed.db")
	store := openPath(t, path)
	l := newLimiter(t, store, "l", day)
	allow(t, l, "key")
	db := store.DB()
	for range 2 {
		must(t, store.Close())
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		testenv.ErrorIs(t, testenv.ErrorOf(os.Stat(path+suffix)), fs.ErrNotExist, suffix, "after Close")
	}
	_, allow := l.Allow(t.Context(), "key")
	_, peek := l.Peek(t.Context(), "key")
	_, sweep := store.Sweep(t.Context(), 1)
	_, all := limiter.AllowAll(t.Context(), claims("key", l)...)
	for what, err := range map[string]error{"Allow": allow, "Peek": peek, "AllowAll": all, "Sweep": sweep, "Check": store.Check(t.Context())} {
		testenv.ErrorIs(t, err, limiter.ErrNotApplied, what, "after Close")
		testenv.Contains(t, fmt.Sprint(what, ": ", err), "closed")
	}
	testenv.Contains(t, fmt.Sprint(db.PingContext(t.Context())), "closed")
	unused := openOnly(t, path)
	must(t, unused.Close())
	testenv.Contains(t, fmt.Sprint(unused.DB().PingContext(t.Context())), "closed")
}

func TestNewLeavesThePoolAlone(t *testing.T) {
	t.Parallel()
	db := openPool(t, "")
	store := newStore(t, db)
	testenv.Equal(t, store.DB() == db, true, "DB is the pool that New was given")
	l := newLimiter(t, store, "l", day)
	allow(t, l, "key")
	testenv.Equal(t, db.Stats().MaxOpenConnections, 4, "connections that the pool may have, as before")
	must(t, store.Close())
	testenv.Equal(t, dump(t, store, "PRAGMA journal_mode"), "delete\n", "journal_mode after Close, as before")

	second := newStore(t, db)
	db.Close()
	testenv.ErrorIs(t, testenv.ErrorOf(newLimiter(t, second, "l", day).Allow(t.Context(), "key")), limiter.ErrNotApplied, "Allow on a closed pool")
}

// A connection may not write because of its settings, or because of the file.
func TestNewOnAReadOnlyPool(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ro.db")
	openPath(t, path)
	for _, params := range []string{"_query_only=1", "mode=ro"} {
		store, err := sqlite.New(openDB(t, path, "?"+params))
		must(t, err)
		_, err = newLimiter(t, store, "l", day).Allow(t.Context(), "key")
		for what, err := range map[string]error{"Allow": err, "Check": store.Check(t.Context())} {
			testenv.ErrorIs(t, err, limiter.ErrMisconfigured, params, what)
			testenv.Contains(t, fmt.Sprint(params, " ", what, ": ", err), "cannot be written")
		}
	}
}

// The DSN that docs/operations.md shows, apart from the directory, does what it says there.
func TestDSNOfTheOperationsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	const dir = "file:/var/lib/app/"
	dsn := regexp.MustCompile(dir + `[^"\s]*`).FindString(string(page))
	if dsn == "" {
		t.Fatalf("docs/operations.md shows no DSN in %s", dir)
	}
	db, err := sql.Open("sqlite", strings.Replace(dsn, dir, "file:"+filepath.ToSlash(t.TempDir())+"/", 1))
	must(t, err)
	defer db.Close()
	store := newStore(t, db)
	l := newLimiter(t, store, "l", day)
	allow(t, l, "key")
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "1", "busy_timeout": "20"} {
		testenv.Equal(t, dump(t, store, "PRAGMA "+pragma), want+"\n", pragma)
	}
	// _txlock=immediate: a transaction has the write lock before its first statement.
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	testenv.ErrorIs(t, testenv.ErrorOf(l.Allow(short, "key")), context.DeadlineExceeded, "Allow beside a transaction")
}

// FuzzPath checks that Open rejects a path, or makes a URI that SQLite reads as that path, without
// a parameter.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"", "app.db", ":memory:", ":memory:.db", "file:app.db?mode=ro", "FILE:x", "/var/lib/app.db", "//server/share/app.db", "///x",
		"C:/Users/a b.db", "C:app.db", "c:", "a?mode=memory&cache=shared", "a#b", "a%00b", "a%3fmode=ro", "\x00", "nul\x00.db", "\xff", "ä", "a&b=c;d", "a\\b", "..", "./x", "a\nb",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		store, err := sqlite.Open(path)
		wrong := path == "" || strings.HasPrefix(path, "file:") || strings.HasPrefix(path, "sqlite:") || strings.Contains(path, "\x00")
		if wrong != errors.Is(err, limiter.ErrInvalid) || wrong != (err != nil) {
			t.Fatalf("Open(%q): %v, want ErrInvalid: %t", path, err, wrong)
		}
		if err != nil {
			return
		}
		must(t, store.Close())
		uri := sqlite.FileURI(path)
		u, err := url.Parse(uri)
		if err != nil || u.Scheme != "file" || u.Host != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
			t.Fatalf("%q is written as %s, which is %+v (%v)", path, uri, u, err)
		}
		read, err := url.PathUnescape(cmp.Or(u.Opaque, u.EscapedPath()))
		if drive := len(path) > 2 && path[0] != '/' && path[1:3] == ":/"; drive { // SQLite drops the slash before it, on Windows
			read = strings.TrimPrefix(read, "/")
		}
		if err != nil || read != path {
			t.Errorf("%q is written as %s, which is read as %q (%v)", path, uri, read, err)
		}
	})
}

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
			last := lines[len(lines)-1]
			testenv.Equal(t, strings.HasSuffix(last, ";") && !strings.Contains(last, "--"), true, "ends with the end of a statement:", last)
			testenv.Equal(t, strings.HasPrefix(text, "-- "), true, "begins with a comment that says what it does")
			plan := dump(t, store, "EXPLAIN QUERY PLAN "+text, make([]any, 20)...) // enough for all parameters
			testenv.Equal(t, strings.Contains(plan, "SCAN limiter") && name != "lock", false, plan, "reads a whole table")
		})
	}
}

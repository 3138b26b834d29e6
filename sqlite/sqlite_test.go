package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/sqlite"
	"github.com/sqlimit/limiter/storetest"
)

var must = testenv.Must

func TestStore(t *testing.T) {
	t.Parallel()
	test := func(name string, open func(t testing.TB) *sqlite.Store, as func(t testing.TB, store *sqlite.Store) limiter.Store) {
		t.Run(name, func(t *testing.T) {
			if name != "file" {
				skipShort(t, "it repeats the scripts on another pool")
			}
			t.Parallel()
			storetest.Run(t, func(t *testing.T) limiter.Store {
				store := open(t)
				t.Cleanup(func() {
					if store.Check(context.Background()) == nil { // otherwise the test has closed it
						checkTypes(t, store)
					}
				})
				return as(t, store)
			})
		})
	}
	for name, open := range openers {
		test(name, open, func(_ testing.TB, store *sqlite.Store) limiter.Store { return store })
	}
	test("two Stores on one file", openFile, func(t testing.TB, store *sqlite.Store) limiter.Store {
		return &inTurn{Store: store, other: openOnly(t, fileOf(t, store))}
	})
}

// inTurn asks two Stores in turn, as two processes ask.
type inTurn struct {
	*sqlite.Store
	other *sqlite.Store
	asked atomic.Int64
}

func (s *inTurn) next() *sqlite.Store { return []*sqlite.Store{s.Store, s.other}[s.asked.Add(1)%2] }

func (s *inTurn) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	return s.next().Do(ctx, op)
}

func (s *inTurn) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	return s.next().DoAll(ctx, ops)
}

func (s *inTurn) Sweep(ctx context.Context, limit int64) (int64, error) {
	return s.next().Sweep(ctx, limit)
}

func (s *inTurn) Close() error { return errors.Join(s.Store.Close(), s.other.Close()) }

func TestStoreWhoseClockIsSteppedBack(t *testing.T) {
	t.Parallel()
	storetest.RunClock(t, func(t *testing.T) (limiter.Store, func(time.Duration)) {
		var offset atomic.Int64
		store := openFile(t)
		store.SetClock(func() time.Time { return time.Now().Add(time.Duration(offset.Load())) })
		return store, func(d time.Duration) { offset.Store(int64(d)) }
	})
}

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(b *testing.B) limiter.Store { return openFile(b) })
}

// openers return a Store on a new database, one for each way to open it.
var openers = map[string]func(t testing.TB) *sqlite.Store{
	"file":   openFile,
	"memory": func(t testing.TB) *sqlite.Store { return openPath(t, ":memory:") },
	// Without WAL and with deferred transactions: the harder case, and SQLite's default.
	"own pool": func(t testing.TB) *sqlite.Store { return newStore(t, openPool(t, "")) },
}

// openFile returns a Store on a new file with its tables.
func openFile(t testing.TB) *sqlite.Store {
	t.Helper()
	return openPath(t, filepath.Join(t.TempDir(), "limiter.db"))
}

func openPath(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	store := openOnly(t, path)
	migrate(t, store)
	return store
}

// openOnly returns a Store and makes no tables.
func openOnly(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(path)
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	return store
}

// openPool returns a pool of four connections to a new file.
func openPool(t testing.TB, params string) *sql.DB {
	t.Helper()
	db := openDB(t, filepath.Join(t.TempDir(), "own.db"), "?_busy_timeout=10&_synchronous=OFF"+params)
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	return db
}

// openDB returns a pool of connections to the file at path.
func openDB(t testing.TB, path, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+params)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

func newStore(t testing.TB, db *sql.DB) *sqlite.Store {
	t.Helper()
	store, err := sqlite.New(db)
	must(t, err)
	migrate(t, store)
	return store
}

func migrate(t testing.TB, store *sqlite.Store) {
	t.Helper()
	must(t, migrations.Up(context.Background(), migrations.SQLite, store.DB()))
}

// fileOf returns the path of the file of a Store.
func fileOf(t testing.TB, store *sqlite.Store) (path string) {
	t.Helper()
	must(t, store.DB().QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list").Scan(&path))
	return path
}

// skipShort skips a test in a short run.
func skipShort(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short leaves it out: " + why)
	}
}

// execute runs a statement on the database of a Store.
func execute(t testing.TB, store *sqlite.Store, query string, args ...any) {
	t.Helper()
	must(t, testenv.ErrorOf(store.DB().ExecContext(t.Context(), query, args...)))
}

// checkTypes checks that nothing has overflowed: an INTEGER that does becomes a REAL.
func checkTypes(t testing.TB, store *sqlite.Store) {
	t.Helper()
	for _, table := range tables.All {
		query := "SELECT count(*) FROM " + table.Name + " WHERE typeof(limiter) <> 'text' OR typeof(key) <> 'blob' OR typeof(granted) <> 'integer'"
		for _, column := range table.Columns {
			query += " OR typeof(" + column + ") <> '" + map[bool]string{true: "blob", false: "integer"}[slices.Contains(table.Lists, column)] + "'"
		}
		var wrong int
		must(t, store.DB().QueryRow(query).Scan(&wrong))
		testenv.Equal(t, wrong, 0, "rows that have a column of another type than declared")
	}
}

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

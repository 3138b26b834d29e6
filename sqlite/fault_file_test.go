package sqlite_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

func TestFaultsOfFiles(t *testing.T) {
	for _, f := range []fault{
		{
			name: "the tables are gone", class: limiter.ErrMisconfigured,
			begin: func(p *faulty) func() {
				execute(p, p.store, "ALTER TABLE limiter_token_buckets RENAME TO away")
				return func() { execute(p, p.store, "ALTER TABLE away RENAME TO limiter_token_buckets") }
			},
		},
		{name: "the pages are garbage", class: limiter.ErrMisconfigured, begin: damages(garbage(4096))},
		{name: "all of it is garbage", class: limiter.ErrMisconfigured, begin: damages(garbage(0))},
		{name: "it is cut short", class: limiter.ErrMisconfigured, begin: damages(func(whole []byte) []byte { return whole[:4096] })},
	} {
		f.run(t)
	}
}

// garbage leaves the first bytes as they are, and overwrites the others.
func garbage(after int) func(whole []byte) []byte {
	return func(whole []byte) []byte {
		return append(whole[:after:after], bytes.Repeat([]byte{0xa5}, len(whole)-after)...)
	}
}

// damages changes the contents of the file, and returns what restores them. In between nothing else may
// change them, as a repair would.
func damages(how func(whole []byte) []byte) func(p *faulty) (end func()) {
	return func(p *faulty) (end func()) {
		p.Helper()
		// Now all is in the file, and nothing in the log or in the caches of connections.
		execute(p, p.store, "CREATE TABLE another (a); PRAGMA wal_checkpoint(TRUNCATE)")
		f, err := os.OpenFile(p.path, os.O_RDWR, 0)
		must(p, err)
		p.files = append(p.files, f)
		contents := func() []byte {
			all, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
			must(p, err)
			return all
		}
		overwrite := func(with []byte) {
			must(p, f.Truncate(int64(len(with))))
			must(p, testenv.ErrorOf(f.WriteAt(with, 0)))
		}
		whole := contents()
		damaged := how(whole)
		overwrite(damaged)
		return func() {
			if !bytes.Equal(contents(), damaged) || p.store.Stats().ConnectionsLost == 0 {
				p.Error("the damaged file was changed, or its connection was kept")
			}
			overwrite(whole)
		}
	}
}

// The first use of a Store creates the file, if it can.
func TestFaultsFromTheStart(t *testing.T) {
	text := bytes.Repeat([]byte("not a database\n"), 999)
	for name, begin := range map[string]func(p *faulty){
		"there is no directory":                func(p *faulty) { p.path = filepath.Join(filepath.Dir(p.path), "missing", "limiter.db") },
		"there is a directory in its place":    func(p *faulty) { must(p, os.Mkdir(p.path, 0o700)) },
		"there is something else in its place": func(p *faulty) { must(p, os.WriteFile(p.path, text, 0o600)) },
		"there are no tables":                  nil,
	} {
		t.Run(name, func(t *testing.T) {
			p := &faulty{T: t, path: movable(t), key: "key"}
			if begin != nil {
				begin(p)
			}
			p.store = openOnly(t, p.path)
			p.decides(limiter.ErrMisconfigured)
			p.is(p.store.Check(t.Context()), limiter.ErrMisconfigured)
			p.wantFailures(1, limiter.ErrMisconfigured)
			p.wantFailures(4, limiter.ErrMisconfigured)
			if begin != nil {
				if found, err := os.ReadFile(p.path); err == nil && !bytes.Equal(found, text) {
					p.Errorf("of what is not a database there are %d bytes, want %d", len(found), len(text))
				}
				must(t, os.RemoveAll(p.path))
				must(t, os.MkdirAll(filepath.Dir(p.path), 0o700))
			}
			migrate(p, p.store)
			p.recovers()
			p.drains()
		})
	}
}

// The database is full by SQLite's own limit. Rows that exist can still be changed, and the breaker stays
// closed for their keys.
func TestFaultsOfAFullFile(t *testing.T) {
	db := openPool(t, "&_journal_mode=WAL")
	db.SetMaxOpenConns(1) // the limit is the connection's
	p := &faulty{T: t, key: "key", store: newStore(t, db)}
	for range 10 {
		must(t, p.ask(t.Context()))
	}
	var pages int
	must(t, db.QueryRow("PRAGMA page_count").Scan(&pages))
	limit := func(n int) { must(t, db.QueryRow(fmt.Sprintf("PRAGMA max_page_count = %d", n)).Scan(&n)) }
	limit(pages)

	other := &faulty{T: t, store: p.store}
	for other.key = "0"; other.ask(t.Context()) == nil; other.key += "0" {
		if len(other.key) == 255 {
			t.Fatal("the file does not fill up")
		}
	}
	other.decides(limiter.ErrNotApplied)
	other.wantFailures(1, limiter.ErrNotApplied)
	other.wantFailures(4, limiter.ErrNotApplied)
	p.wantFailures(1, nil)
	testenv.Equal(t, p.store.Stats().BreakerOpenings, 0, "openings of the breaker")
	limit(1 << 30)
	other.admitted.Store(0)
	other.recovers()
	other.drains()
	p.drains()
}

func TestNewKeysEnlargeTheFile(t *testing.T) {
	skipShort(t, "it adds thousands of keys")
	t.Parallel()
	const callers, keys = 8, 300
	for name, pragma := range map[string]string{
		"a file as Open makes it":           "",
		"a file that keeps no free pages":   "_auto_vacuum=1",
		"a file that frees pages on demand": "_auto_vacuum=2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := movable(t)
			db := openDB(t, path, "?"+pragma)
			must(t, testenv.ErrorOf(db.ExecContext(t.Context(), "CREATE TABLE other (x)")))
			must(t, db.Close())
			// Two Stores, as two processes have.
			stores := []*sqlite.Store{openPath(t, path), openPath(t, path)}
			var all sync.WaitGroup
			for w := range callers {
				all.Go(func() {
					p := &faulty{T: t, store: stores[w%len(stores)]}
					for i := range keys {
						key := fmt.Sprintf("key-%d-%d", i, w)
						must(t, p.takes(key))
						must(t, testenv.ErrorOf(p.store.DoAll(t.Context(), []limiter.Op{takeOf("m", key, slow, 1), takeOf("n", key, window, 1)})))
					}
				})
			}
			all.Wait()
			testenv.Equal(t, dump(t, stores[0], "SELECT count(*) FROM limiter_token_buckets"), fmt.Sprintln(2*callers*keys), "rows")
			testenv.Equal(t, dump(t, stores[0], "SELECT name FROM sqlite_schema WHERE name LIKE '%room%'"), "", "objects of the schema that are named like room")
			left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".limiter*"))
			must(t, err)
			testenv.Equal(t, left, nil, "files are left")
		})
	}
}

func TestTableWithTheNameOfFreePages(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	execute(t, store, "CREATE TABLE limiter_free_pages (x)")
	p := &faulty{T: t, store: store}
	for i := 0; p.takes(fmt.Sprint("a long name of a key ", i)) == nil; i++ {
		if i == 10_000 {
			t.Fatal("the file needed no free pages")
		}
	}
	execute(t, store, "DROP TABLE limiter_free_pages")
	must(t, p.takes("new"))
}

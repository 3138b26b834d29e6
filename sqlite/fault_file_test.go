package sqlite_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
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

// damages changes the contents of the file, and returns what restores them. In between nothing else
// may change them, as a repair would.
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
			testenv.Equal(p, bytes.Equal(contents(), damaged), true, "nothing changed the damaged file")
			testenv.Equal(p, p.store.Stats().ConnectionsLost > 0, true, "the Store closed its connection")
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

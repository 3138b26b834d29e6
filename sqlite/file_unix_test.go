//go:build unix

package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

// A move changes a file of a Store. Without back, the file is gone for good.
type move struct {
	away, back func(t *testing.T, path string)
}

// renames is a move that renames the files with these suffixes, and back.
func renames(suffixes ...string) move {
	rename := func(from, to string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			for _, suffix := range suffixes {
				must(t, os.Rename(path+from+suffix, path+to+suffix))
			}
		}
	}
	return move{rename("", ".away"), rename(".away", "")}
}

// SQLite notices none of these. Windows removes no file that a process has open.
var moves = map[string]move{
	"removed":          {away: func(t *testing.T, path string) { must(t, os.Remove(path)) }},
	"renamed":          renames(""),
	"without its -wal": renames("-wal"),
	"without its -shm": {away: func(t *testing.T, path string) { must(t, os.Remove(path+"-shm")) }},
	"emptied":          {away: func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) }},
	"replaced by another database": {
		away: func(t *testing.T, path string) {
			must(t, openPath(t, path+".other").Close())
			must(t, os.Link(path, path+".away"))
			must(t, os.Rename(path+".other", path))
		},
		back: renames("").back,
	},
	"with another -wal": {away: func(t *testing.T, path string) {
		must(t, os.Remove(path+"-wal"))
		must(t, os.WriteFile(path+"-wal", nil, 0o600))
	}},
	"in a directory that was renamed": {
		func(t *testing.T, path string) { must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".away")) },
		func(t *testing.T, path string) { must(t, os.Rename(filepath.Dir(path)+".away", filepath.Dir(path))) },
	},
}

func TestFaultsOfPaths(t *testing.T) {
	for name, m := range moves {
		fault{
			name: name, class: limiter.ErrMisconfigured,
			begin: func(p *faulty) func() {
				p.store.EndCopies() // its connection may be about to create -wal
				m.away(p.T, p.path)
				before := allFiles(p.T, p.path)
				p.misses()
				// Neither looks that need more connections, nor the pool of DB, make a file.
				each(64, func() {
					_, err := p.limiter().Peek(p.Context(), p.key)
					p.is(err, limiter.ErrMisconfigured)
				})
				p.is(p.store.Check(p.Context()), limiter.ErrMisconfigured)
				_, err := p.store.Sweep(p.Context(), 1)
				p.is(err, limiter.ErrMisconfigured)
				testenv.Equal(p, allFiles(p.T, p.path), before, "the files")
				return func() {
					if m.back == nil {
						p.replace()
						return
					}
					m.back(p.T, p.path)
					must(p, p.store.Check(p.Context()))
				}
			},
		}.run(t)
	}
}

// replace makes a new file, which forgets what was admitted. That takes a new Store.
func (p *faulty) replace() {
	p.Helper()
	must(p, p.store.Close())
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(p.path + suffix); !errors.Is(err, fs.ErrNotExist) {
			must(p, err)
		}
	}
	p.store = openPath(p, p.path)
	p.admitted.Store(0)
	p.unknown.Store(0)
}

// misses takes until the Store misses its file. That must be soon, because what it admits meanwhile is
// lost if the file is.
func (p *faulty) misses() {
	p.Helper()
	begin, stop := time.Now(), stalls()
	missed(p.T, p.limiter(limiter.WithTimeout(time.Minute)))
	if d, most := time.Since(begin), 100*time.Millisecond+grace()+stop(); d > most {
		p.Errorf("the file was missed after %v, want %v at most", d, most)
	}
}

// missed takes until the Store misses its file.
func missed(t *testing.T, l *limiter.Limiter) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		_, err := l.Allow(t.Context(), "missed")
		switch {
		case errors.Is(err, limiter.ErrMisconfigured):
			return
		case err != nil:
			t.Fatalf("Allow: %v, want ErrMisconfigured", err)
		case time.Now().After(deadline):
			t.Fatal("takes are still granted in a file that is not there")
		}
	}
}

// The caller who opens a connection when the file goes is the first to know, and not the only one.
func TestNothingIsGrantedAfterAMiss(t *testing.T) {
	skipShort(t, "it makes ten files")
	t.Parallel()
	for range 10 {
		path := movable(t)
		store := openPath(t, path)
		op := takeOf("l", "key", limiter.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour}, 1)
		var missed atomic.Bool
		var callers sync.WaitGroup
		granted := make(chan struct{})
		grant := sync.OnceFunc(func() { close(granted) })
		for range 6 {
			callers.Go(func() {
				for {
					before := missed.Load()
					_, err := store.Do(t.Context(), op)
					switch {
					case err == nil:
						grant()
						if before {
							t.Error("a take was granted after another had missed the file")
							return
						}
					case !errors.Is(err, limiter.ErrMisconfigured):
						t.Errorf("a take of a file that was removed: %v, want ErrMisconfigured", err)
						return
					case missed.Swap(true):
						return
					}
				}
			})
		}
		<-granted // now they open connections
		must(t, os.Remove(path))
		callers.Wait()
	}
}

// A pool opens connections when it needs them. The file may have been removed by then.
func TestLateConnectionMakesNoFile(t *testing.T) {
	t.Parallel()
	look := takeOf("l", "key", day, 1)
	look.Kind = limiter.OpLook
	for name, use := range map[string]func(store *sqlite.Store) error{
		"a take": func(store *sqlite.Store) error {
			return testenv.ErrorOf(store.Do(t.Context(), takeOf("l", "key", day, 1)))
		},
		"a look":  func(store *sqlite.Store) error { return testenv.ErrorOf(store.Do(t.Context(), look)) },
		"a check": func(store *sqlite.Store) error { return store.Check(t.Context()) },
		"a sweep": func(store *sqlite.Store) error { return testenv.ErrorOf(store.Sweep(t.Context(), 1)) },
		"the pool of DB": func(store *sqlite.Store) error {
			store.DB().SetMaxIdleConns(0)
			return store.DB().PingContext(t.Context())
		},
	} {
		path := movable(t)
		store := openPath(t, path) // by the pool of DB
		for _, file := range []string{path, path + "-wal", path + "-shm"} {
			must(t, os.Remove(file))
		}
		testenv.ErrorIs(t, use(store), limiter.ErrMisconfigured, name, "on a file that was removed")
		testenv.ErrorIs(t, testenv.ErrorOf(os.Stat(path)), fs.ErrNotExist, name, "on a file that was removed")
	}
}

// The Store must not write or remove the companions of a file that has replaced its own.
func TestCloseLeavesAnotherFileAlone(t *testing.T) {
	t.Parallel()
	path := movable(t)
	store := openPath(t, path)
	l := newLimiter(t, store, "l", day)
	allow(t, l, "key")
	for _, file := range []string{path, path + "-wal", path + "-shm"} {
		must(t, os.Remove(file))
	}
	other := openPath(t, path)
	if r, err := newLimiter(t, other, "l", day).Allow(t.Context(), "key"); err != nil || r.Remaining != 1 {
		t.Fatalf("Allow on the new file = %+v, %v", r, err)
	}
	missed(t, l)
	before := allFiles(t, path)
	must(t, store.Close())
	testenv.Equal(t, allFiles(t, path), before, "the files after Close")
	if r, err := newLimiter(t, other, "l", day).Allow(t.Context(), "key"); err != nil || r.Remaining != 0 {
		t.Errorf("Allow on the new file = %+v, %v", r, err)
	}
}

// allFiles returns the names of the files around the one at path.
func allFiles(t *testing.T, path string) (all string) {
	t.Helper()
	must(t, filepath.WalkDir(filepath.Dir(filepath.Dir(path)), func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all += name + "\n"
		}
		return err
	}))
	return all
}

func TestTakeBehindALockMissesItsFile(t *testing.T) {
	t.Parallel()
	path := movable(t)
	store := openPath(t, path)
	l := newLimiter(t, store, "l", limiter.PerHour(100), limiter.WithTimeout(10*time.Second))
	allow(t, l, "key")
	lock(t, openPath(t, path))
	answered := make(chan error, 1)
	go func() { answered <- testenv.ErrorOf(l.Allow(t.Context(), "key")) }()
	select {
	case err := <-answered:
		t.Fatalf("Allow did not wait for the lock: %v", err)
	case <-time.After(50 * time.Millisecond): // now it waits
	}
	must(t, os.Remove(path))
	testenv.ErrorIs(t, <-answered, limiter.ErrMisconfigured, "Allow on a file that was removed while it waited for the lock")
}

// The store watches the file that a link leads to, and the companions beside that file.
func TestLinkLeadsElsewhere(t *testing.T) {
	t.Parallel()
	path, other, link := movable(t), movable(t), movable(t)
	must(t, openPath(t, path).Close())
	must(t, openPath(t, other).Close())
	must(t, os.Symlink(path, link))
	l := newLimiter(t, openPath(t, link), "l", limiter.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour}, at(t0))
	allow(t, l, "key")
	must(t, os.Rename(path+"-wal", path+".away"))
	missed(t, l)
	must(t, os.Rename(path+".away", path+"-wal"))
	for back := time.Now(); ; {
		if _, err := l.Allow(t.Context(), "key"); err == nil {
			break
		} else if time.Since(back) > recovery {
			t.Fatalf("Allow when the file is back: %v", err)
		}
	}
	must(t, os.Remove(link))
	must(t, os.Symlink(other, link))
	missed(t, l)

	beside := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(filepath.Dir(path), beside))
	allow(t, newLimiter(t, openPath(t, beside+"/../up.db"), "l", day), "key")
	must(t, testenv.ErrorOf(os.Stat(beside+"/../up.db")))
}

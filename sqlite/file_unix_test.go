//go:build unix

package sqlite_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

// Windows removes no file that somebody has open. Elsewhere each of these goes unnoticed by SQLite.
var moves = []struct {
	name string
	away func(t *testing.T, path string)
	back func(t *testing.T, path string) // nil if the file is gone for good
}{
	{"removed", func(t *testing.T, path string) { must(t, os.Remove(path)) }, nil},
	{
		"renamed",
		func(t *testing.T, path string) { must(t, os.Rename(path, path+".away")) },
		func(t *testing.T, path string) { must(t, os.Rename(path+".away", path)) },
	},
	{
		"renamed with its companions",
		func(t *testing.T, path string) {
			for _, suffix := range []string{"", "-wal", "-shm"} {
				must(t, os.Rename(path+suffix, path+".away"+suffix))
			}
		},
		func(t *testing.T, path string) {
			for _, suffix := range []string{"", "-wal", "-shm"} {
				must(t, os.Rename(path+".away"+suffix, path+suffix))
			}
		},
	},
	{
		"replaced by another database",
		func(t *testing.T, path string) {
			other := openPath(t, path+".other")
			must(t, other.Close())
			must(t, os.Link(path, path+".away"))
			must(t, os.Rename(path+".other", path))
		},
		func(t *testing.T, path string) { must(t, os.Rename(path+".away", path)) },
	},
	{"replaced by an empty file", func(t *testing.T, path string) {
		must(t, os.Remove(path))
		must(t, os.WriteFile(path, nil, 0o600))
	}, nil},
	{
		"in a directory that was renamed",
		func(t *testing.T, path string) { must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".away")) },
		func(t *testing.T, path string) { must(t, os.Rename(filepath.Dir(path)+".away", filepath.Dir(path))) },
	},
	{
		"without its -wal",
		func(t *testing.T, path string) { must(t, os.Rename(path+"-wal", path+".away")) },
		func(t *testing.T, path string) { must(t, os.Rename(path+".away", path+"-wal")) },
	},
	{"with another -wal", func(t *testing.T, path string) {
		must(t, os.Remove(path+"-wal"))
		must(t, os.WriteFile(path+"-wal", nil, 0o600))
	}, nil},
	{"without its -shm", func(t *testing.T, path string) { must(t, os.Remove(path+"-shm")) }, nil},
	{"emptied", func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) }, nil},
	{"with an emptied -shm", func(t *testing.T, path string) { must(t, os.Truncate(path+"-shm", 0)) }, nil},
}

func TestAFileThatIsMovedAwayIsMissed(t *testing.T) {
	t.Parallel()
	for _, m := range moves {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			path := movable(t)
			store := openPath(t, path)
			l := newLimiter(t, store, "l", limiter.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour}, at(t0))
			if _, err := l.Allow(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
			m.away(t, path)
			before, left := allFiles(t, path), time.Now()
			missed(t, l)
			t.Logf("missed after %v", time.Since(left))

			// Neither calls that need more connections, nor those of DB, make a file.
			var wg sync.WaitGroup
			for i := range 64 {
				wg.Go(func() {
					if _, err := l.AllowN(t.Context(), fmt.Sprint(i), 1<<40); !errors.Is(err, limiter.ErrMisconfigured) {
						t.Errorf("AllowN: %v, want ErrMisconfigured", err)
					}
				})
			}
			wg.Wait()
			if err := store.Check(t.Context()); !errors.Is(err, limiter.ErrMisconfigured) {
				t.Errorf("Check: %v, want ErrMisconfigured", err)
			}
			if _, err := store.Sweep(t.Context(), 1); !errors.Is(err, limiter.ErrMisconfigured) {
				t.Errorf("Sweep: %v, want ErrMisconfigured", err)
			}
			if after := allFiles(t, path); after != before {
				t.Errorf("there were the files %s, and now %s", before, after)
			}

			if m.back == nil {
				return
			}
			m.back(t, path)
			if err := store.Check(t.Context()); err != nil {
				t.Errorf("Check when the file is back: %v", err)
			}
			// After so many failures the file is asked for only now and then.
			for back := time.Now(); ; <-time.After(time.Millisecond) {
				_, err := l.Allow(t.Context(), "key")
				if err == nil {
					break
				}
				if time.Since(back) > 5*time.Second {
					t.Fatalf("Allow when the file is back: %v", err)
				}
			}
		})
	}
}

// missed takes until the Store misses its file.
func missed(t *testing.T, l *limiter.Limiter) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		_, err := l.Allow(t.Context(), "key")
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

// Who opens a connection just when the file goes is the first to know, and not the only one.
func TestOnceTheFileIsMissedNothingIsGranted(t *testing.T) {
	t.Parallel()
	for range 30 {
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

// A pool opens connections when it needs them: long after the file was made, perhaps, and removed.
func TestAConnectionThatComesLateMakesNoFile(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(store *sqlite.Store) error{
		"a take": func(store *sqlite.Store) error {
			_, err := store.Do(t.Context(), takeOf("l", "key", day, 1))
			return err
		},
		"a look": func(store *sqlite.Store) error {
			op := takeOf("l", "key", day, 1)
			op.Kind = limiter.OpLook
			_, err := store.Do(t.Context(), op)
			return err
		},
		"a check": func(store *sqlite.Store) error { return store.Check(t.Context()) },
		"a sweep": func(store *sqlite.Store) error { _, err := store.Sweep(t.Context(), 1); return err },
	} {
		path := movable(t)
		store := openPath(t, path) // by the pool of DB
		for _, file := range []string{path, path + "-wal", path + "-shm"} {
			must(t, os.Remove(file))
		}
		if err := use(store); !errors.Is(err, limiter.ErrMisconfigured) {
			t.Errorf("%s on a file that was removed: %v, want ErrMisconfigured", name, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s on a file that was removed: there is a file now, %v", name, err)
		}
	}
	// The other way round: the pool of DB comes late.
	path := movable(t)
	must(t, openPath(t, path).Close())
	store, err := sqlite.Open(path)
	must(t, err)
	defer store.Close()
	must(t, store.Check(t.Context()))
	must(t, os.Remove(path))
	if err := store.DB().PingContext(t.Context()); !errors.Is(err, limiter.ErrMisconfigured) {
		t.Errorf("DB of a file that was removed: %v, want ErrMisconfigured", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("DB of a file that was removed: there is a file now, %v", err)
	}
}

// What belongs to a file that has taken the place of the Store's is not the Store's to write or remove.
func TestCloseLeavesAnotherFileAlone(t *testing.T) {
	t.Parallel()
	path := movable(t)
	store := openPath(t, path)
	l := newLimiter(t, store, "l", day)
	if _, err := l.Allow(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, path + "-wal", path + "-shm"} {
		must(t, os.Remove(file))
	}
	other := openPath(t, path)
	if r, err := newLimiter(t, other, "l", day).Allow(t.Context(), "key"); err != nil || r.Remaining != 1 {
		t.Fatalf("Allow on the new file = %+v, %v", r, err)
	}
	missed(t, l)
	before := allFiles(t, path)
	if err := store.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if after := allFiles(t, path); after != before {
		t.Errorf("Close: there were the files %s, and now %s", before, after)
	}
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

// waitFor waits until ready is true, which it may be late by itself.
func waitFor(t testing.TB, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ready(); {
		if time.Now().After(deadline) {
			t.Fatal("waited for 10 s in vain")
		}
	}
}

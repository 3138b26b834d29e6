package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

// A full disk stops new keys.
func TestFaultsOfAFullDisk(t *testing.T) {
	skipShort(t, "it fills disks")
	disk := sqlite.Tmpfs(t, 16<<20)
	p := &faulty{T: t, path: filepath.Join(t.TempDir(), "link"), key: "key"}
	must(t, os.Symlink(filepath.Join(disk, "limiter.db"), p.path))
	p.store = openPath(t, p.path)
	takes := func(n, first int) {
		for i := range n {
			must(t, p.takes(fmt.Sprintf("key-%d", (first+i)%1000)))
		}
	}
	takes(3000, 0)
	must(t, p.ask(t.Context()))
	execute(p, p.store, "VACUUM")
	<-time.After(150 * time.Millisecond) // the Store notices a VACUUM within 100 ms
	p.store.EndCopies()
	sqlite.Fill(t, filepath.Join(disk, "ballast"), 0)
	// While another process copies the log, takes wait for it.
	time.AfterFunc(200*time.Millisecond, sqlite.LockCopies(t, filepath.Join(disk, "limiter.db")))
	takes(900, 0)
	p.wantFailures(4, nil)
	added, refused := 0, 0
	refusesNewKey := func() bool {
		added++
		err := p.takes(fmt.Sprintf("new-%d", added))
		if err != nil {
			p.is(err, limiter.ErrNotApplied)
			refused++
		}
		return err != nil
	}
	for range 3000 {
		refusesNewKey()
	}
	takes(900, 0)
	must(t, testenv.ErrorOf(p.limiter().Peek(t.Context(), p.key)))
	// Takes that share a transaction with new keys are also decided.
	var beside sync.WaitGroup
	for w := range 4 {
		beside.Go(func() { takes(100, 100*w) })
	}
	for range 100 {
		refusesNewKey()
	}
	beside.Wait()
	testenv.Equal(t, refused > 0, true, "new keys are refused")
	(&faulty{T: t, store: p.store, key: strings.Repeat("0", 255)}).decides(limiter.ErrNotApplied)
	testenv.Equal(t, p.store.Stats().BreakerOpenings, 0, "openings of the breaker")
	must(t, os.Remove(filepath.Join(disk, "ballast")))
	for begin := time.Now(); refusesNewKey() && time.Since(begin) < recovery; {
		<-time.After(time.Millisecond)
	}
	for range 3000 {
		testenv.Equal(t, refusesNewKey(), false, "a new key is refused when the disk has room again")
	}
	p.drains()
}

// A pool of the caller cannot enlarge the file in advance, but its log can begin anew.
func TestFaultsOfAFullDiskOnAnOwnPool(t *testing.T) {
	disk := sqlite.Tmpfs(t, 4<<20)
	db := openDB(t, filepath.Join(disk, "limiter.db"), "?_busy_timeout=0&_journal_mode=WAL&_synchronous=NORMAL&_txlock=immediate")
	p := &faulty{T: t, store: newStore(t, db)}
	for i := range 50 {
		must(t, p.takes(fmt.Sprint(i)))
	}
	sqlite.Fill(t, filepath.Join(disk, "ballast"), 0)
	for i := range 900 {
		must(t, p.takes(fmt.Sprint(i%50)))
	}
}

// The account of the process lacks a right.
func TestFaultsOfRights(t *testing.T) {
	for _, c := range []struct {
		name      string
		dir, file os.FileMode
	}{
		{"the file may only be read", 0o777, 0o444},
		{"the directory may only be read", 0o555, 0o666},
		{"the file may not be read", 0o777, 0},
		{"the directory may not be searched", 0, 0o666},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &faulty{T: t, path: movable(t), key: "key"}
			must(t, openPath(t, p.path).Close())
			for dir := filepath.Dir(p.path); dir != filepath.Dir(os.TempDir()); dir = filepath.Dir(dir) {
				if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o001 == 0 {
					must(t, os.Chmod(dir, 0o755))
				}
			}
			rights := func(dir, file os.FileMode) {
				must(t, os.Chmod(filepath.Dir(p.path), 0o777))
				files, err := filepath.Glob(p.path + "*") // SQLite makes its companions with the rights of the file
				must(t, err)
				for _, f := range files {
					must(t, os.Chmod(f, file))
				}
				must(t, os.Chmod(filepath.Dir(p.path), dir))
			}
			rights(c.dir, c.file)
			p.store = openOnly(t, p.path)
			sqlite.AsNobody(t, func() {
				p.decides(limiter.ErrMisconfigured)
				p.inTime(func() {
					for range 3 {
						p.is(p.askSoon(t.Context()), limiter.ErrMisconfigured)
					}
				})
			})
			rights(0o777, 0o666)
			sqlite.AsNobody(t, func() {
				p.recovers()
				p.drains()
				must(t, p.store.Close())
			})
		})
	}
}

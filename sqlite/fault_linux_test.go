package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

// lockCopies keeps all processes from copying the log, as one that copies it does.
func lockCopies(t *testing.T, path string) (unlock func()) {
	t.Helper()
	const (
		checkpointLock = 121 // the byte of -shm that a connection locks while it copies: WAL_CKPT_LOCK
		lockOpenFile   = 37  // F_OFD_SETLK of fcntl: unlike F_SETLK, it also keeps this process out
	)
	shared, err := os.OpenFile(path+"-shm", os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { _ = shared.Close() }) // closing it earlier would drop SQLite's locks in this process
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: checkpointLock, Len: 1}
	must(t, syscall.FcntlFlock(shared.Fd(), lockOpenFile, &lock))
	return func() {
		lock.Type = syscall.F_UNLCK
		must(t, syscall.FcntlFlock(shared.Fd(), lockOpenFile, &lock))
	}
}

// A full disk stops new keys, and nothing else. The takes before decide how long the log is, and their
// keys decide which pages are in the log alone.
func TestFaultsOfAFullDisk(t *testing.T) {
	skipShort(t, "it fills disks")
	for _, c := range []struct {
		takes, keys int
		before      string
	}{{50, 1, ""}, {500, 500, ""}, {3000, 1000, ""}, {3000, 1000, "VACUUM"}} {
		t.Run(fmt.Sprintf("filled after %d takes on %d keys %s", c.takes, c.keys, c.before), func(t *testing.T) {
			disk := tmpfs(t, 16<<20)
			p := &faulty{T: t, path: filepath.Join(disk, "limiter.db"), key: "key"}
			if c.keys == 500 {
				p.path = filepath.Join(t.TempDir(), "link")
				must(t, os.Symlink(filepath.Join(disk, "limiter.db"), p.path))
			}
			p.store = openPath(t, p.path)
			key := func(i int) string { return fmt.Sprintf("key-%d", i%c.keys) }
			for i := range c.takes {
				must(t, p.takes(key(i)))
			}
			for range 10 {
				must(t, p.ask(t.Context()))
			}
			execute(t, p.store, c.before)
			<-time.After(150 * time.Millisecond) // the Store notices a VACUUM within 100 ms
			ballast := filepath.Join(disk, "ballast")
			fill(t, ballast)
			existing := func() {
				t.Helper()
				for i := range 900 {
					must(t, p.takes(key(i)))
				}
			}
			// While another process copies the log, takes wait for it.
			time.AfterFunc(200*time.Millisecond, lockCopies(t, filepath.Join(disk, "limiter.db")))
			existing()
			p.wantFailures(1, nil)
			p.wantFailures(4, nil)
			refused := 0
			for i := 0; refused < 100; i++ {
				if i == 100_000 {
					t.Fatal("a full disk has room for 100,000 new keys")
				}
				if err := p.takes(fmt.Sprintf("new-%d", i)); err != nil {
					p.is(err, limiter.ErrNotApplied)
					refused++
				}
			}
			existing()
			// Takes that share a transaction with new keys are also decided.
			var beside sync.WaitGroup
			for w := range 4 {
				beside.Go(func() {
					for i := range 100 {
						if err := p.takes(fmt.Sprintf("new-%d-%d", w, i)); err != nil {
							p.is(err, limiter.ErrNotApplied)
						}
					}
				})
				beside.Go(func() {
					for i := range 100 {
						must(t, p.takes(key(w+4*i)))
					}
				})
			}
			beside.Wait()
			p.wantFailures(4, nil)
			if r, err := p.limiter().Peek(t.Context(), p.key); err != nil || r.Remaining != budget.Capacity-p.admitted.Load() {
				t.Errorf("Peek on a full disk = %+v, %v", r, err)
			}
			// A reader keeps the log from starting anew, but does not make each take wait for its end.
			reader, err := openDB(t, p.path, "").BeginTx(t.Context(), nil)
			must(t, err)
			must(t, reader.QueryRow("SELECT count(*) FROM limiter_token_buckets").Scan(new(int)))
			for i := 0; p.takes(key(i)) == nil; i++ {
				if i == 100_000 {
					t.Fatal("the log never filled")
				}
			}
			begin := time.Now()
			for range 200 {
				p.is(p.takes(key(0)), limiter.ErrNotApplied)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("200 takes beside a reader took %v, want 5 s at most", took)
			}
			must(t, reader.Rollback())
			existing()
			must(t, os.Remove(ballast))
			begin = time.Now()
			for i := 0; i < 3000; {
				err := p.takes(fmt.Sprintf("later-%d", i))
				switch {
				case err == nil:
					i++
				case time.Since(begin) > recovery:
					t.Fatalf("new key %d when the disk has room again: %v", i, err)
				default:
					<-time.After(time.Millisecond)
				}
			}
			p.drains()
		})
	}
}

// A pool of the caller cannot enlarge the file in advance, but its log can begin anew.
func TestFaultsOfAFullDiskOnAnOwnPool(t *testing.T) {
	disk := tmpfs(t, 4<<20)
	db := openDB(t, filepath.Join(disk, "limiter.db"), "?_busy_timeout=0&_journal_mode=WAL&_synchronous=NORMAL&_txlock=immediate")
	p := &faulty{T: t, store: newStore(t, db)}
	for i := range 50 {
		must(t, p.takes(fmt.Sprint(i)))
	}
	fill(t, filepath.Join(disk, "ballast"))
	for i := range 900 {
		must(t, p.takes(fmt.Sprint(i%50)))
	}
}

// fill writes a file until nothing more goes onto the disk.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// tmpfs returns a directory that is a filesystem of its own.
func tmpfs(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", size)); err != nil {
		testenv.Unavailable(t, "tmpfs", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	return dir
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
			asNobody(t, func() {
				p.decides(limiter.ErrMisconfigured)
				p.inTime(func() {
					for range 3 {
						p.is(p.askSoon(t.Context()), limiter.ErrMisconfigured)
					}
				})
			})
			rights(0o777, 0o666)
			asNobody(t, func() {
				p.recovers()
				p.drains()
				must(t, p.store.Close())
			})
		})
	}
}

// asNobody calls f in a thread of its own that has the rights of the account nobody. A lone take runs in
// its caller's goroutine.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	must(t, syscall.Setfsuid(nobody))
	defer func() { must(t, syscall.Setfsuid(0)) }()
	f()
}

package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/host"
	"github.com/sqlimit/limiter/sqlite"
)

// A filesystem without room for a page, on which the log cannot grow.
func TestFaults_of_a_full_disk(t *testing.T) {
	disk := tmpfs(t, 4<<20)
	p := &patient{T: t, path: filepath.Join(disk, "limiter.db"), key: "key"}
	p.store = openPath(t, p.path)
	for range 10 {
		must(t, p.ask(t.Context()))
	}
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	// The log's last block may have room for a few more.
	for p.ask(t.Context()) == nil {
		if p.admitted.Load() > 100 {
			t.Fatal("the disk does not fill up")
		}
	}
	p.decides(limiter.ErrNotApplied)
	p.suffer(1, limiter.ErrNotApplied)
	p.suffer(4, limiter.ErrNotApplied)
	if r, err := p.limiter().Peek(t.Context(), p.key); err != nil || r.Remaining != budget.Capacity-p.admitted.Load() {
		t.Errorf("Peek on a full disk = %+v, %v", r, err)
	}
	must(t, os.Remove(ballast))
	p.recovers()
	p.drains()
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
		host.Unavailable(t, "tmpfs", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Somebody who may read the file and not write it.
func TestFaults_of_rights(t *testing.T) {
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
			p := &patient{T: t, path: movable(t), key: "key"}
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
			store, err := sqlite.Open(p.path)
			must(t, err)
			p.store = store
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
				must(t, store.Close())
			})
		})
	}
}

// asNobody calls f in a thread that has the rights of nobody in particular, where nothing but f runs: a
// take by itself runs in its caller's goroutine.
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

//go:build unix

package sqlite_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

func TestATakeThatWaitsForALockMissesTheFileMeanwhile(t *testing.T) {
	t.Parallel()
	path := movable(t)
	store := openPath(t, path)
	l := newLimiter(t, store, "l", limiter.PerHour(100), limiter.WithTimeout(10*time.Second))
	if _, err := l.Allow(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	other, err := sqlite.Open(path)
	must(t, err)
	defer other.Close()
	defer lock(t, other).Close()

	began := time.Now()
	taken := make(chan error, 1)
	go func() {
		_, err := l.Allow(t.Context(), "key")
		taken <- err
	}()
	select {
	case err := <-taken:
		t.Fatalf("Allow did not wait for the lock: %v", err)
	case <-time.After(50 * time.Millisecond): // now it waits
	}
	must(t, os.Remove(path))
	if err := <-taken; !errors.Is(err, limiter.ErrMisconfigured) {
		t.Errorf("Allow, of whose file nothing was left when the lock was free: %v after %v, want ErrMisconfigured", err, time.Since(began))
	}
}

// The file that a link leads to is the one that counts, and that its companions lie beside.
func TestALinkMayLeadElsewhere(t *testing.T) {
	t.Parallel()
	path, other := movable(t), movable(t)
	must(t, openPath(t, path).Close())
	must(t, openPath(t, other).Close())
	link := movable(t)
	must(t, os.Symlink(path, link))
	l := newLimiter(t, openPath(t, link), "l", limiter.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour}, at(t0))
	if _, err := l.Allow(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	must(t, os.Rename(path+"-wal", path+".away"))
	missed(t, l)
	must(t, os.Rename(path+".away", path+"-wal"))
	waitFor(t, func() bool { _, err := l.Allow(t.Context(), "key"); return err == nil })
	must(t, os.Remove(link))
	must(t, os.Symlink(other, link))
	missed(t, l)
}

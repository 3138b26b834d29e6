//go:build !race

// The race detector makes SQLite too slow for these measurements. With it, the other tests run the
// goroutine.

package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

// While a reader is open, SQLite cannot copy the log to the file. A busy machine may stop for the
// default time limit of 250 ms, so the limit is twice as long.
func TestLogAfterALongReader(t *testing.T) {
	skipShort(t, "it writes a long log")
	const callers, keys, megabytes, timeout, recovery = 16, 100, 256, 500 * time.Millisecond, time.Minute
	path := filepath.Join(tmpfs(t, 4*megabytes<<20), "log.db")
	store := openPath(t, path)
	l := newLimiter(t, store, "l", limiter.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour},
		limiter.FailOpen(), limiter.WithTimeout(timeout))
	var calls, passed, slowest atomic.Int64
	allow := func(caller, i int) {
		begin := time.Now()
		r, err := l.Allow(t.Context(), fmt.Sprint("key-", caller, "-", i%keys))
		must(t, err)
		if r.Source != limiter.SourceStore {
			passed.Add(1)
		}
		calls.Add(1)
		for took, m := int64(time.Since(begin)), slowest.Load(); took > m && !slowest.CompareAndSwap(m, took); m = slowest.Load() {
		}
	}
	for i := range callers * keys {
		allow(i/keys, i)
	}
	reader, err := openDB(t, path, "").BeginTx(t.Context(), nil)
	must(t, err)
	must(t, reader.QueryRow("SELECT count(*) FROM limiter_fixed_windows").Scan(new(int)))
	for _, query := range []string{
		"CREATE TABLE ballast (b BLOB)",
		`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO ballast SELECT zeroblob(1048576) FROM n`,
	} {
		execute(t, store, query, megabytes)
	}
	if size := logSize(t, path); size < megabytes<<20 {
		t.Fatalf("the log has %d bytes beside a reader, want %d MB", size, megabytes)
	}
	must(t, reader.Rollback())

	traffic := func(size int64) time.Duration {
		begin := time.Now()
		var all sync.WaitGroup
		for w := range callers {
			all.Go(func() {
				for i := 0; logSize(t, path) > size && time.Since(begin) < recovery; i++ {
					allow(w, i)
				}
			})
		}
		all.Wait()
		if logSize(t, path) > size {
			t.Errorf("the log has %d bytes after %v, want %d at most", logSize(t, path), recovery, size)
		}
		return time.Since(begin)
	}
	calls.Store(0)
	passed.Store(0)
	slowest.Store(0)
	stop := stalls()
	took := traffic(logSize(t, path) - 20<<20) // until the log has begun anew twice
	stood := stop()
	t.Logf("%d calls in %v, the slowest %v, while the machine stood still for %v", calls.Load(), took, time.Duration(slowest.Load()), stood)
	if n := passed.Load(); n > 0 {
		t.Errorf("FailOpen let %d calls pass", n)
	}
	if d := time.Duration(slowest.Load()); d >= timeout/2+stood {
		t.Errorf("the slowest call took %v, want less than %v", d, timeout/2)
	}
	traffic(16<<20 + 1<<16)
}

// load takes from the keys by each of the Stores, and returns how long the log was at most.
func load(t *testing.T, path string, keys int, duration time.Duration, stores ...*sqlite.Store) int64 {
	t.Helper()
	const callers = 16
	begin := time.Now()
	var calls, longest atomic.Int64
	var all sync.WaitGroup
	for w := range callers * len(stores) {
		l := newLimiter(t, stores[w%len(stores)], "l", limiter.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour})
		all.Go(func() {
			for i := w; time.Since(begin) < duration; i++ {
				allow(t, l, fmt.Sprint(i*7919%keys))
				calls.Add(1)
				if i%16 == 0 {
					longest.Store(max(longest.Load(), logSize(t, path)))
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d calls, the log had %d bytes at most", calls.Load(), longest.Load())
	return longest.Load()
}

// Three Stores, as three processes have, write as much as they can.
func TestLogUnderFullLoad(t *testing.T) {
	skipShort(t, "it writes a long log")
	const most = 64 << 20
	path := filepath.Join(tmpfs(t, 4*most), "log.db")
	if n := load(t, path, 20_000, time.Second, openPath(t, path), openPath(t, path), openPath(t, path)); n > most {
		t.Errorf("the log has %d bytes, want %d at most", n, most)
	}
}

// A process that is frozen while it copies the log keeps the others from copying it, but not from
// writing rows that exist. The log is short again soon after it continues.
func TestLogOfAFrozenProcess(t *testing.T) {
	skipShort(t, "it writes a long log")
	const keys, most = 100, 64 << 20
	path := filepath.Join(tmpfs(t, 8*most), "log.db")
	store := openPath(t, path)
	l := newLimiter(t, store, "l", limiter.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour})
	for i := range keys {
		allow(t, l, fmt.Sprint(i))
	}
	unlock := lockCopies(t, path)
	load(t, path, keys, 300*time.Millisecond, store)
	unlock()
	load(t, path, keys, 500*time.Millisecond, store)
	if n := logSize(t, path); n > most {
		t.Errorf("the log has %d bytes, want %d at most", n, most)
	}
}

func logSize(t *testing.T, path string) int64 {
	t.Helper()
	log, err := os.Stat(path + "-wal")
	must(t, err)
	return log.Size()
}

//go:build !race

// The race detector makes SQLite too slow for these measurements.

package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

// load lets 16 callers per Store take until -wal has at most size bytes, or for duration.
func load(keys int, size int64, duration time.Duration, all ...*faulty) {
	begin := time.Now()
	var callers sync.WaitGroup
	for w := range 16 * len(all) {
		p := all[w%len(all)]
		callers.Go(func() {
			for i := w; logSize(p.T, p.path) > size && time.Since(begin) < duration; i++ {
				must(p, p.takes(fmt.Sprint(i*7919%keys)))
			}
		})
	}
	callers.Wait()
}

// The log stays short under the load of three Stores. A long reader makes it grow, and it shrinks
// again. No take waits longer than usual meanwhile.
func TestLogAfterALongReader(t *testing.T) {
	skipShort(t, "it writes a long log")
	const loaded, long, short = 64 << 20, 256 << 20, 16<<20 + 1<<16
	p := &faulty{T: t, path: filepath.Join(sqlite.Tmpfs(t, 4*long), "log.db")}
	p.store = openPath(t, p.path)
	load(20_000, 0, time.Second, p, &faulty{T: t, path: p.path, store: openPath(t, p.path)}, &faulty{T: t, path: p.path, store: openPath(t, p.path)})
	testenv.Equal(t, max(logSize(t, p.path), loaded), loaded, "bytes of the log of three Stores, at most")

	p.path = filepath.Join(filepath.Dir(p.path), "long.db")
	p.store = openPath(t, p.path)
	for i := range 1600 {
		must(t, p.takes(fmt.Sprint(i)))
	}
	reader, err := openDB(t, p.path, "").BeginTx(t.Context(), nil)
	must(t, err)
	must(t, reader.QueryRow("SELECT count(*) FROM limiter_token_buckets").Scan(new(int)))
	execute(t, p.store, "CREATE TABLE ballast (b BLOB)")
	execute(t, p.store, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO ballast SELECT zeroblob(1048576) FROM n`, long>>20)
	size := logSize(t, p.path)
	testenv.Equal(t, min(size, long), long, "bytes of the log beside a reader, at least")
	must(t, reader.Rollback())
	p.inTime(func() { load(1600, size-20<<20, time.Minute, p) }) // until the log has begun anew twice
	load(1600, short, time.Minute, p)
	testenv.Equal(t, max(logSize(t, p.path), short), short, "bytes of the log after the reader, at most")
}

func logSize(t *testing.T, path string) int64 {
	t.Helper()
	log, err := os.Stat(path + "-wal")
	must(t, err)
	return log.Size()
}

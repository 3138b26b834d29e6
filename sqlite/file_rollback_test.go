//go:build unix

package sqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/sqlite"
)

// The goose command line makes files that are not in WAL mode: -wal and -shm come into being
// only when a Store has opened one.
func TestCompanionsOfAFileThatWasNotInWALModeAreMissedToo(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"-wal", "-shm"} {
		path := movable(t)
		db, err := sql.Open("sqlite", "file:"+path)
		must(t, err)
		must(t, migrations.Up(t.Context(), migrations.SQLite, db))
		must(t, db.Close())
		store, err := sqlite.Open(path)
		must(t, err)
		t.Cleanup(func() { _ = store.Close() })
		l := newLimiter(t, store, "l", limiter.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour}, at(t0))
		allow := func() {
			_, err := l.Allow(t.Context(), "key")
			must(t, err)
		}
		// The files are there after the first take. The store has looked at them when it has taken again
		// after some time, however slow the first take was.
		allow()
		for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; {
			allow()
		}
		allow()
		must(t, os.Remove(path+suffix))
		missing := time.Now()
		for {
			_, err := l.Allow(t.Context(), "key")
			if errors.Is(err, limiter.ErrMisconfigured) {
				break
			}
			if time.Since(missing) > 5*time.Second {
				t.Fatalf("that %s is gone is not noticed: %v", suffix, err)
			}
		}
	}
}

package sqlite_test

import (
	"errors"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	limitersqlite "github.com/sqlimit/limiter/sqlite"
)

// SQLite fails with SQLITE_BUSY_SNAPSHOT if a transaction writes that has read before another connection
// wrote. No busy timeout helps. The Store reads the clock in between, so here the other one writes then.
func TestFaultsOfSnapshots(t *testing.T) {
	p := newFaulty(t, openPath)
	other := &faulty{T: t, path: p.path, key: "key", store: openPath(t, p.path)}
	must(t, other.ask(t.Context()))
	meddles, reads := 0, 0
	p.store.SetClock(func() time.Time {
		if reads++; reads <= meddles {
			must(t, other.ask(t.Context()))
		}
		return time.Now()
	})

	// A take that is too late tries again.
	for _, meddles = range []int{1, 2, 7} {
		reads = 0
		p.wantFailures(1, nil)
	}
	// A take that is always too late is not applied.
	meddles, reads = 1<<30, 0
	p.inTime(func() { p.is(p.askSoon(t.Context()), limiter.ErrNotApplied) })
	t.Logf("it was too late %d times", reads)

	meddles = 0
	p.recovers()
	p.admitted.Add(other.admitted.Load())
	p.drains()
}

func TestBusySnapshotIsNotApplied(t *testing.T) {
	t.Parallel()
	p := newFaulty(t, openPath)
	db := openDB(p, p.path, "?_busy_timeout=5000")
	late, err := db.Conn(t.Context())
	must(t, err)
	begin(t, late, "BEGIN", "SELECT count(*) FROM limiter_token_buckets")
	const write = "INSERT INTO limiter_token_buckets VALUES ('l', x'00', 0, 0, 1000, 1, 1)"
	must(t, testenv.ErrorOf(db.ExecContext(t.Context(), write))) // on another connection
	_, err = late.ExecContext(t.Context(), write)
	var code *sqlite.Error
	if !errors.As(err, &code) || code.Code() != 517 {
		t.Fatalf("a write on an old snapshot: %v, want SQLITE_BUSY_SNAPSHOT", err)
	}
	p.is(limitersqlite.InterpretError(err, true), limiter.ErrNotApplied)
}

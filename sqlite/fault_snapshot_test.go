package sqlite_test

import (
	"errors"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/sqlimit/limiter"
	limitersqlite "github.com/sqlimit/limiter/sqlite"
)

// SQLITE_BUSY_SNAPSHOT comes where a transaction has read, somebody else has written, and it writes: at
// once, whatever the busy timeout. The Store reads the clock between the two, which lets this test in.
func TestFaultsOfSnapshots(t *testing.T) {
	p := &faulty{T: t, path: movable(t), key: "key"}
	p.store = openPath(t, p.path)
	other := &faulty{T: t, path: p.path, key: "key", store: openPath(t, p.path)}
	must(t, other.ask(t.Context()))
	meddles, reads := 0, 0
	p.store.SetClock(func() time.Time {
		if reads++; reads <= meddles {
			must(t, other.ask(t.Context()))
		}
		return time.Now()
	})

	// Who comes too late once tries again, on what is there then.
	for _, meddles = range []int{1, 2, 7} {
		reads = 0
		p.wantFailures(1, nil)
	}
	// Who always does is not applied.
	meddles, reads = 1<<30, 0
	p.inTime(func() { p.is(p.askSoon(t.Context()), limiter.ErrNotApplied) })
	t.Logf("it came too late %d times", reads)

	meddles = 0
	p.recovers()
	p.admitted.Add(other.admitted.Load())
	p.drains()
}

func TestABusySnapshotIsNotApplied(t *testing.T) {
	t.Parallel()
	p := &faulty{T: t, path: movable(t)}
	openPath(t, p.path)
	late, early := connect(p, "?_busy_timeout=5000"), connect(p, "?_busy_timeout=5000")
	rollback := holds(p, late, "BEGIN", "SELECT count(*) FROM limiter_token_buckets")
	defer rollback()
	const write = "INSERT INTO limiter_token_buckets VALUES ('l', x'00', 0, 0, 1000, 1, 1)"
	_, err := early.ExecContext(t.Context(), write)
	must(t, err)
	_, err = late.ExecContext(t.Context(), write)
	var code *sqlite.Error
	if !errors.As(err, &code) || code.Code() != 517 {
		t.Fatalf("a write on an old snapshot: %v, want SQLITE_BUSY_SNAPSHOT", err)
	}
	p.is(limitersqlite.InterpretError(err, true), limiter.ErrNotApplied)
}

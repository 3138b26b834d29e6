package sqlite_test

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter"
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

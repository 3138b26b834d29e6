package sqlite_test

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

func TestFaultsOfLocks(t *testing.T) {
	for _, f := range []fault{
		{name: "another connection writes", class: limiter.ErrNotApplied, begin: begins("BEGIN IMMEDIATE")},
		// Without WAL a writer keeps readers out, and readers keep writers out.
		{name: "another connection has all of the file", class: limiter.ErrNotApplied, open: withoutWAL, begin: begins("BEGIN EXCLUSIVE")},
		// Only the commit waits.
		{name: "another connection reads, without WAL", class: limiter.ErrNotApplied, doubt: true, open: withoutWAL, begin: reader},
		{name: "another connection reads", begin: reader},
	} {
		f.slow = f.class != nil
		f.run(t)
	}
}

func withoutWAL(t testing.TB, path string) *sqlite.Store {
	return newStore(t, openDB(t, path, "?_busy_timeout=0&_synchronous=OFF"))
}

// begins begins a transaction on a connection of another program to the file.
func begins(queries ...string) func(p *faulty) (end func()) {
	return func(p *faulty) (end func()) {
		p.Helper()
		conn, err := openDB(p, p.path, "").Conn(p.Context())
		must(p, err)
		return begin(p.T, conn, queries...)
	}
}

// reader reads in a transaction, until the function that it returns is called.
var reader = begins("BEGIN", "SELECT count(*) FROM limiter_token_buckets")

// A write fails with SQLITE_BUSY_SNAPSHOT if another connection wrote since its transaction read. No
// busy timeout helps. The Store reads the clock in between. Here the other connection writes then.
func TestFaultsOfSnapshots(t *testing.T) {
	p := newFaulty(t, openPath)
	other := &faulty{T: t, path: p.path, key: "key", store: openPath(t, p.path)}
	must(t, other.ask(t.Context()))
	meddles, reads := 0, 0
	meddle := func() { must(t, other.ask(t.Context())) }
	p.store.SetClock(func() time.Time {
		if reads++; reads <= meddles {
			meddle()
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
	// If DoAll is too late, it looks again. Then it takes the write lock before it reads.
	meddle = func() { _ = other.askFor(t.Context(), time.Millisecond) } // fails beside the lock
	several := request(0, 2)
	several[0].At, several[1].At, reads = 0, 0, 0
	must(t, testenv.ErrorOf(p.store.DoAll(t.Context(), several)))
	testenv.Equal(t, reads, 3, "readings of the clock")

	meddles = 0
	p.recovers()
	p.admitted.Add(other.admitted.Load())
	p.drains()
}

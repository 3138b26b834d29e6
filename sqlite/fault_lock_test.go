package sqlite_test

import (
	"testing"

	"github.com/sqlimit/limiter"
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

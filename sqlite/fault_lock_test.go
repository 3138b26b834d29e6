package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

func TestFaultsOfLocks(t *testing.T) {
	for _, f := range []fault{
		{name: "another connection writes", class: limiter.ErrNotApplied, begin: begins("BEGIN IMMEDIATE")},
		{
			name: "another process writes", class: limiter.ErrNotApplied,
			begin: func(p *faulty) func() {
				process, in := writer(p)
				return func() {
					must(p, in.Close())
					must(p, process.Wait())
				}
			},
		},
		{name: "another process is killed while it writes", class: limiter.ErrNotApplied, begin: killedWriter},
		// Without WAL a writer keeps readers out, and readers keep writers out.
		{name: "another connection has all of the file", class: limiter.ErrNotApplied, open: withoutWAL, begin: begins("BEGIN EXCLUSIVE")},
		{name: "another process is killed while it writes, without WAL", class: limiter.ErrNotApplied, open: withoutWAL, begin: killedWriter},
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

// writer returns a process that writes in a transaction, until its input is closed.
func writer(p *faulty) (*exec.Cmd, io.Closer) {
	p.Helper()
	process := testenv.Self(p, "SQLITE_TEST_WRITER="+p.path)
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	must(p, err)
	out, err := process.StdoutPipe()
	must(p, err)
	must(p, process.Start())
	must(p, testenv.ErrorOf(bufio.NewReader(out).ReadString('\n')))
	return process, in
}

// killedWriter lets another process write, and returns what kills it.
func killedWriter(p *faulty) func() {
	process, _ := writer(p)
	return func() {
		must(p, process.Process.Kill())
		_ = process.Wait() // it says that it was killed
	}
}

// writes is what the process of writer does. It charges what it finds, and rolls that back.
func writes(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?_busy_timeout=5000&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE limiter_token_buckets SET full_at = full_at + 1"); err != nil {
		return err
	}
	if err := testenv.AwaitStart(); err != nil {
		return err
	}
	return tx.Rollback()
}

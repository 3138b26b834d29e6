package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// holdLock runs sql in a transaction that keeps its locks until it is released.
func (d *database) holdLock(t *testing.T, statement string) (release func()) {
	t.Helper()
	tx, err := d.db.BeginTx(bounded(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	release = func() {
		if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("release: %v", err)
		}
	}
	t.Cleanup(release)
	return release
}

// blocked waits until n backends wait for a lock, and returns one of their ids.
func (d *database) blocked(t *testing.T, n int) (pid int) {
	t.Helper()
	ctx := bounded(t)
	for {
		var waiting int
		err := d.db.QueryRowContext(ctx, `SELECT count(*), coalesce(max(pid), 0) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting, &pid)
		if err != nil {
			t.Fatalf("waiting for %d blocked backends: %v", n, err)
		}
		if waiting == n {
			return pid
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%d backends are blocked, want %d", waiting, n)
		}
	}
}

// send sends op and returns when it waits for a lock. answer waits for its outcome.
func (d *database) send(ctx context.Context, t *testing.T, store limiter.Store, op limiter.Op) (answer func() (limiter.State, error)) {
	t.Helper()
	var s limiter.State
	var err error
	var answered sync.WaitGroup
	answered.Go(func() { s, err = store.Do(ctx, op) })
	d.blocked(t, 1)
	return func() (limiter.State, error) {
		answered.Wait()
		return s, err
	}
}

// terminateBlocked ends the session that waits for a lock.
func (d *database) terminateBlocked(t *testing.T) {
	t.Helper()
	query[bool](t, d, "SELECT pg_terminate_backend($1)", d.blocked(t, 1))
}

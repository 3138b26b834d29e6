package migrations_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
)

func TestAnInterruptedUpLeavesNoTrace(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		s := site{database: d}
		other, err := d.open(t, d.interrupting()...).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		// In PostgreSQL the migration waits in its midst, for the name of its second table.
		if _, err := other.ExecContext(t.Context(), `CREATE TABLE limiter_fixed_windows (i integer)`); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- migrations.Up(ctx, d.dialect, d.DB) }()
		if d.dialect == migrations.Postgres {
			d.awaitLockWait(t)
		}
		cancel()
		if err := <-done; !errors.Is(err, limiter.ErrCanceled) {
			t.Errorf("Up: %v, want ErrCanceled", err)
		}
		if err := other.Rollback(); err != nil {
			t.Fatal(err)
		}
		d.wantEmpty(t)
		s.wantCheck(t, "migrations.Up")
		mustUp(t, s)
		s.wantUsable(t)
		d.wantGolden(t)
	})
}

// interrupting returns the parameters of a transaction that is in the way of another.
func (d database) interrupting() []string {
	if d.dialect == migrations.SQLite {
		return []string{"_txlock", "immediate"}
	}
	return nil
}

// awaitLockWait returns once a session of this database waits for a lock.
func (d database) awaitLockWait(t *testing.T) {
	t.Helper()
	for t.Context().Err() == nil {
		var n int
		err := d.QueryRowContext(t.Context(), `SELECT count(*), pg_sleep(0.01) IS NULL FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n, new(bool))
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
}

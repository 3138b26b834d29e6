package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

// sqliteModes are the ways in which applications open SQLite files. Without a busy timeout, a
// statement that meets a lock fails at once.
var sqliteModes = map[string][]string{
	"rollback journal":                        {},
	"rollback journal, immediate":             {"_txlock", "immediate"},
	"rollback journal, busy timeout":          {"_pragma", "busy_timeout(5000)"},
	"write-ahead log":                         {"_pragma", "journal_mode(wal)"},
	"write-ahead log, busy timeout, deferred": {"_pragma", "busy_timeout(5000)", "_pragma", "journal_mode(wal)"},
	"write-ahead log, as the store opens it":  {"_pragma", "busy_timeout(5000)", "_pragma", "journal_mode(wal)", "_txlock", "immediate"},
}

type migration = func(context.Context, migrations.Dialect, *sql.DB, ...migrations.Option) error

// together starts n migrations at once, each on a handle of its own, and returns their errors. The
// first is run[0], the second run[1], and so on in turn.
func (d database) together(t *testing.T, n int, params []string, run ...migration) error {
	t.Helper()
	var wait sync.WaitGroup
	errs, start := make([]error, n), make(chan struct{})
	for i := range n {
		db := d.open(t, params...)
		if d.dialect == migrations.Postgres {
			db.SetMaxOpenConns(1) // it stays open, with the locks that it holds
		}
		wait.Go(func() {
			<-start
			errs[i] = run[i%len(run)](t.Context(), d.dialect, db)
		})
	}
	close(start)
	wait.Wait()
	return errors.Join(errs...)
}

func TestUpAtOnce(t *testing.T) {
	t.Parallel()
	for mode, params := range sqliteModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			for range 4 {
				d := onSQLite(t)
				must(t, d.together(t, 8, params, migrations.Up))
				d.wantGolden(t)
				must(t, d.together(t, 8, params, migrations.Down))
				d.wantEmpty(t)
			}
		})
	}
	onPostgres(t, func(t *testing.T, d database) {
		must(t, d.together(t, 4, nil, migrations.Up))
		d.wantGolden(t)
		// The connections are still open, and hold no lock.
		if locks := d.count(t, `SELECT count(*) FROM pg_locks
			WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); locks != 0 {
			t.Errorf("%d advisory locks are held after Up, want 0", locks)
		}
	})
}

func TestUpAndDownAtOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		for range 2 {
			// Either may win, and the other may fail. What they leave behind counts.
			_ = d.together(t, 6, nil, migrations.Up, migrations.Down)
			d.up(t)
			d.wantUsable(t)
			d.wantGolden(t)
			d.down(t)
		}
	})
}

func TestUpWaits(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		params, lock := []string(nil), `SELECT pg_advisory_xact_lock(8189646887991628505)` // all releases need the same lock
		if d.dialect == migrations.SQLite {
			params, lock = []string{"_txlock", "exclusive"}, `SELECT 1`
		}
		other, err := d.open(t, params...).BeginTx(t.Context(), nil)
		must(t, err)
		must(t, testenv.ErrorOf(other.ExecContext(t.Context(), lock)))
		waiting := d.open(t)
		short, cancel := context.WithTimeout(t.Context(), time.Second) // enough to migrate without waiting
		defer cancel()
		err = migrations.Up(short, d.dialect, waiting)
		testenv.ErrorIs(t, err, limiter.ErrCanceled, "Up while another process has the lock")
		testenv.ErrorIs(t, err, context.DeadlineExceeded, "Up while another process has the lock")
		done := make(chan error)
		go func() { done <- migrations.Up(t.Context(), d.dialect, waiting) }()
		must(t, other.Rollback())
		must(t, <-done)
		d.wantGolden(t)
	})
}

func TestAnInterruptedUpLeavesNoTrace(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		params := []string(nil)
		if d.dialect == migrations.SQLite {
			params = []string{"_txlock", "immediate"}
		}
		other, err := d.open(t, params...).BeginTx(t.Context(), nil)
		must(t, err)
		// In PostgreSQL the migration waits in the middle, for the name of its second table.
		must(t, testenv.ErrorOf(other.ExecContext(t.Context(), `CREATE TABLE limiter_fixed_windows (i integer)`)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- migrations.Up(ctx, d.dialect, d.DB) }()
		for d.dialect == migrations.Postgres && d.count(t, `SELECT count(*) FROM pg_stat_activity, pg_sleep(0.01)
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
		}
		cancel()
		if err := <-done; !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, context.Canceled) {
			t.Errorf("Up: %v, want ErrCanceled and Canceled", err)
		}
		must(t, other.Rollback())
		d.wantEmpty(t)
		d.up(t)
		d.wantUsable(t)
		d.wantGolden(t)
	})
}

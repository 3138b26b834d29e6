package overrides_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/overrides"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

// sqlStore is a store that is also a source.
type sqlStore interface {
	limiter.Store
	overrides.Source
}

func exec(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// TestStores runs the same tests on both SQL stores. In PostgreSQL the tables are in a schema of their own.
func TestStores(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		store, err := sqlite.Open(":memory:")
		must(t, err)
		t.Cleanup(func() { _ = store.Close() })
		must(t, migrations.Up(t.Context(), migrations.SQLite, store.DB()))
		testKinds(t, store.DB(), store)
	})
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		t.Parallel()
		dsn := server.Database(t)
		db, err := sql.Open("pgx", dsn+"&search_path=limits")
		must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		exec(t, db, "CREATE SCHEMA limits")
		must(t, migrations.Up(t.Context(), migrations.Postgres, db, migrations.WithSchema("limits")))
		store, err := postgres.Open(dsn, postgres.WithSchema("limits"))
		must(t, err)
		t.Cleanup(func() { _ = store.Close() })
		testKinds(t, db, store)
		testLockedTable(t, db, store)
	})
}

func testKinds(t *testing.T, db *sql.DB, store sqlStore) {
	exec(t, db, `INSERT INTO limiter_overrides (limiter, key, kind, capacity, refill, period, note, expires_at) VALUES
		('kinds', $1, 'bucket', 5, 4, 3000000000, NULL, NULL),
		('kinds', $2, 'window', 5, NULL, 3000000000, 'by Ann', 4000000000000000000),
		('kinds', $3, 'window_counting', 5, NULL, 3000000000, '', NULL),
		('kinds', $4, 'bucket', 5, 4, 3000000000, NULL, 1000000000000000000), -- expired
		('kinds', $5, 'sliding', 5, NULL, 3000000000, NULL, NULL),
		('others', $1, 'bucket', 5, 4, 3000000000, NULL, NULL)`, []byte{0, 0xff}, []byte("b"), []byte("ä"), []byte("a"), []byte("s"))
	want := []limiter.Override{
		{Key: "\x00\xff", Policy: limiter.TokenBucket{Capacity: 5, Refill: 4, Interval: 3 * time.Second}},
		{Key: "b", Policy: limiter.FixedWindow{Limit: 5, Window: 3 * time.Second}, Note: "by Ann", ExpiresAt: time.Unix(4_000_000_000, 0)},
		{Key: "s", Policy: limiter.SlidingWindow{Limit: 5, Window: 3 * time.Second}},
		{Key: "ä", Policy: limiter.FixedWindow{Limit: 5, Window: 3 * time.Second, CountRejected: true}},
	}
	for limit := 1; limit <= 5; limit++ {
		got, err := store.Overrides(t.Context(), "kinds", limit)
		if n := min(limit, len(want)); err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want[:n]) {
			t.Errorf("at most %d overrides: %+v, %v; want %+v", limit, got, err, want[:n])
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Overrides(ended, "kinds", 10); !errors.Is(err, limiter.ErrCanceled) {
		t.Errorf("with a context that has ended: %v, want ErrCanceled", err)
	}
}

// Callers may leave while the table is locked, and the read continues.
func testLockedTable(t *testing.T, db *sql.DB, store *postgres.Store) {
	exec(t, db, `INSERT INTO limiter_overrides (limiter, key, kind, capacity, refill, period) VALUES ('locked', 'k', 'bucket', 5, 5, 60000000000)`)
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "LOCK TABLE limiter_overrides IN ACCESS EXCLUSIVE MODE")
	must(t, err)
	l, err := limiter.New(store, "locked", limiter.PerMinute(2), limiter.WithTimeout(time.Minute),
		limiter.WithPolicyFor(overrides.New(store, "locked")))
	must(t, err)
	var leavers sync.WaitGroup
	for i := range 50 {
		leavers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Millisecond)
			defer cancel()
			if _, err := l.Peek(ctx, "k"); !errors.Is(err, limiter.ErrCanceled) {
				t.Errorf("Peek: %v, want ErrCanceled", err)
			}
		})
	}
	leavers.Wait()
	must(t, tx.Rollback())
	if r, err := l.Peek(t.Context(), "k"); err != nil || r.Limit != 5 { // by the read that the first caller began
		t.Errorf("the limit is %d, %v; want 5", r.Limit, err)
	}
	if n := store.Stats().ConnectionsLost; n != 0 {
		t.Errorf("%d connections lost, want none", n)
	}
}

package overrides_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/overrides"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

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
		must(t, testenv.ErrorOf(db.ExecContext(t.Context(), "CREATE SCHEMA limits")))
		must(t, migrations.Up(t.Context(), migrations.Postgres, db, migrations.WithSchema("limits")))
		store, err := postgres.Open(dsn, postgres.WithSchema("limits"))
		must(t, err)
		t.Cleanup(func() { _ = store.Close() })
		testKinds(t, db, store)
	})
}

func testKinds(t *testing.T, db *sql.DB, store overrides.Source) {
	_, err := db.ExecContext(t.Context(), `INSERT INTO limiter_overrides
		(limiter, key, kind, capacity, refill, period, note, expires_at) VALUES
		('kinds', $1, 'bucket', 5, 4, 3000000000, NULL, NULL),
		('kinds', $2, 'window', 5, NULL, 3000000000, 'by Ann', 4000000000000000000),
		('kinds', $3, 'window_counting', 5, NULL, 3000000000, '', NULL),
		('kinds', $4, 'bucket', 5, 4, 3000000000, NULL, 1000000000000000000), -- expired
		('kinds', $5, 'sliding', 5, NULL, 3000000000, NULL, NULL),
		('others', $1, 'bucket', 5, 4, 3000000000, NULL, NULL)`,
		[]byte{0, 0xff}, []byte("b"), []byte("ä"), []byte("a"), []byte("s"))
	must(t, err)
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
	_, err = store.Overrides(ended, "kinds", 10)
	testenv.ErrorIs(t, err, limiter.ErrCanceled, "with a context that has ended")
}

package overrides_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
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

// database is a database with the tables of limiter.
type database struct {
	db    *sql.DB
	store sqlStore
	other sqlStore // of another process
}

// onStores runs f on both SQL stores. In PostgreSQL the tables are in a schema of their own.
func onStores(t *testing.T, f func(t *testing.T, d database)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "limiter.db")
		open := func() *sqlite.Store {
			store, err := sqlite.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			return store
		}
		store := open()
		if err := migrations.Up(t.Context(), migrations.SQLite, store.DB()); err != nil {
			t.Fatal(err)
		}
		f(t, database{store.DB(), store, open()})
	})
	onPostgres(t, f)
}

// onPostgres is onStores for PostgreSQL alone.
func onPostgres(t *testing.T, f func(t *testing.T, d database)) {
	t.Helper()
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		t.Parallel()
		dsn := server.Database(t)
		db, err := sql.Open("pgx", dsn+"&search_path=limits")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if _, err := db.ExecContext(t.Context(), "CREATE SCHEMA limits"); err != nil {
			t.Fatal(err)
		}
		if err := migrations.Up(t.Context(), migrations.Postgres, db, migrations.WithSchema("limits")); err != nil {
			t.Fatal(err)
		}
		open := func() *postgres.Store {
			store, err := postgres.Open(dsn, postgres.WithSchema("limits"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			return store
		}
		f(t, database{db, open(), open()})
	})
}

func (d database) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := d.db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// set sets an override of a bucket that refills within a minute. The zero time means never.
func (d database) set(t *testing.T, key string, capacity int64, expires time.Time) {
	t.Helper()
	var at any
	if !expires.IsZero() {
		at = expires.UnixNano()
	}
	d.exec(t, `INSERT INTO limiter_overrides (limiter, key, kind, capacity, refill, period, note, expires_at)
		VALUES ('api', $1, 'bucket', $2, $2, 60000000000, 'a note', $3)
		ON CONFLICT (limiter, key) DO UPDATE SET capacity = excluded.capacity, refill = excluded.refill, expires_at = excluded.expires_at`,
		[]byte(key), capacity, at)
}

// newLimiter returns a limiter of 2 a minute with the overrides of a store.
func newLimiter(t *testing.T, store sqlStore, opts []limiter.Option, more ...overrides.Option) *limiter.Limiter {
	t.Helper()
	opts = append(opts, limiter.WithTimeout(time.Minute),
		limiter.WithPolicyFor(overrides.New(store, "api", append([]overrides.Option{overrides.MaxAge(10 * time.Second)}, more...)...)))
	l, err := limiter.New(store, "api", limiter.PerMinute(2), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wantLimit fails the test unless a look says that the key has this limit.
func wantLimit(t *testing.T, l *limiter.Limiter, key string, limit int64) {
	t.Helper()
	r, err := l.Peek(t.Context(), key)
	if err != nil || r.Limit != limit {
		t.Errorf("the limit of %q is %d, %v; want %d", key, r.Limit, err, limit)
	}
}

func TestAnUpgradeTakesEffectAtTheNextRequestAfterMaxAge(t *testing.T) {
	onStores(t, func(t *testing.T, d database) {
		clock := newClocks()
		l := newLimiter(t, d.store, nil, clock.option())
		allow := func(want bool) {
			t.Helper()
			if r, err := l.Allow(t.Context(), "k"); err != nil || r.Allowed != want {
				t.Errorf("Allow: %+v, %v; want allowed %t", r, err, want)
			}
		}
		allow(true)
		allow(true)
		allow(false)
		d.set(t, "k", 60_000_000, time.Time{}) // a token each microsecond
		clock.advance(10*time.Second - 1)
		wantLimit(t, l, "k", 2)
		clock.advance(1)
		wantLimit(t, l, "k", 60_000_000)
		if err := l.Wait(t.Context(), "k"); err != nil { // nothing was left, which carries over
			t.Errorf("Wait: %v", err)
		}
		wantLimit(t, l, "other", 2)
	})
}

func TestAnOverrideOfAStoreEndsAtItsExpiry(t *testing.T) {
	onStores(t, func(t *testing.T, d database) {
		clock := newClocks()
		clock.wall = time.Now()
		l := newLimiter(t, d.store, nil, clock.option())
		d.set(t, "past", 5, clock.wall.Add(-time.Hour))
		d.set(t, "ends", 5, clock.wall.Add(time.Hour))
		d.set(t, "never", 5, time.Time{})
		wantLimit(t, l, "past", 2)
		wantLimit(t, l, "ends", 5)
		clock.wall = clock.wall.Add(time.Hour)
		wantLimit(t, l, "ends", 2)
		wantLimit(t, l, "never", 5)
	})
}

func TestAFailedReadOfAStoreKeepsTheOldOverrides(t *testing.T) {
	onStores(t, func(t *testing.T, d database) {
		clock, seen := newClocks(), &reported{}
		d.exec(t, "ALTER TABLE limiter_overrides RENAME TO away")
		l := newLimiter(t, d.store, nil, clock.option(), seen.option())
		wantLimit(t, l, "k", 2)
		d.exec(t, "ALTER TABLE away RENAME TO limiter_overrides")
		d.set(t, "k", 5, time.Time{})
		clock.advance(10 * time.Second)
		wantLimit(t, l, "k", 5)
		d.exec(t, "ALTER TABLE limiter_overrides RENAME TO away")
		clock.advance(10 * time.Second)
		wantLimit(t, l, "k", 5)
		if len(seen.errs) != 2 {
			t.Errorf("OnError got %v, want two errors", seen.errs)
		}
		for _, err := range seen.errs {
			if !errors.Is(err, limiter.ErrMisconfigured) || !strings.Contains(err.Error(), "migration 1") || !strings.Contains(err.Error(), "migrations.Up") {
				t.Errorf("OnError got %v, want ErrMisconfigured and what to do", err)
			}
		}
	})
}

func TestAStoreMayHaveTenThousandOverridesOfALimiter(t *testing.T) {
	onStores(t, func(t *testing.T, d database) {
		clock, seen := newClocks(), &reported{}
		tx, err := d.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10_000 {
			if _, err := tx.ExecContext(t.Context(), `INSERT INTO limiter_overrides (limiter, key, kind, capacity, refill, period)
				VALUES ('api', $1, 'bucket', 5, 5, 60000000000)`, fmt.Appendf(nil, "key %d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		d.exec(t, "INSERT INTO limiter_overrides (limiter, key, kind, capacity, refill, period) SELECT 'others', key, kind, capacity, refill, period FROM limiter_overrides")
		l := newLimiter(t, d.store, nil, clock.option(), seen.option())
		seen.readInTime(t, clock, l)
		wantLimit(t, l, "key 9999", 5)
		if len(seen.errs) != 0 {
			t.Errorf("OnError got %v", seen.errs)
		}
		d.set(t, "one more", 5, time.Time{})
		clock.advance(10 * time.Second)
		seen.readInTime(t, clock, l)
		wantLimit(t, l, "key 9999", 5)
		wantLimit(t, l, "one more", 2)
		if len(seen.errs) != 1 || !strings.Contains(seen.errs[0].Error(), "10000 overrides") {
			t.Errorf("OnError got %v, want that there are too many", seen.errs)
		}
	})
}

// readInTime lets l read its overrides until a read has ended within the second that it has. On a
// busy machine 10,000 rows may take longer under the race detector.
func (r *reported) readInTime(t *testing.T, clock *clocks, l *limiter.Limiter) {
	t.Helper()
	for range 30 {
		r.errs = nil
		if _, err := l.Peek(t.Context(), "key 1"); err != nil && !errors.Is(err, limiter.ErrNoPolicy) {
			t.Fatal(err)
		}
		if len(r.errs) == 0 || !errors.Is(r.errs[0], context.DeadlineExceeded) {
			return
		}
		clock.advance(10 * time.Second)
	}
}

func TestTwoProcessesSeeAChangeWithinMaxAge(t *testing.T) {
	onStores(t, func(t *testing.T, d database) {
		clock := newClocks()
		one, other := newLimiter(t, d.store, nil, clock.option()), newLimiter(t, d.other, nil, clock.option())
		wantLimit(t, one, "k", 2)
		clock.advance(5 * time.Second)
		wantLimit(t, other, "k", 2)
		d.set(t, "k", 5, time.Time{})
		clock.advance(5 * time.Second)
		wantLimit(t, one, "k", 5)
		wantLimit(t, other, "k", 2)
		clock.advance(5 * time.Second)
		wantLimit(t, other, "k", 5)
		// Both count on one row.
		for i, l := range []*limiter.Limiter{one, other, one, other, one} {
			if r, err := l.Allow(t.Context(), "k"); err != nil || !r.Allowed {
				t.Errorf("request %d: %+v, %v; want it allowed", i, r, err)
			}
		}
	})
}

func TestOverridesOfKeysThatAreStoredAsDigests(t *testing.T) {
	onStores(t, func(t *testing.T, d database) {
		secret := []byte("a secret")
		stored, err := limiter.StoredKey("customer", secret)
		if err != nil {
			t.Fatal(err)
		}
		d.set(t, stored, 5, time.Time{})
		d.set(t, "customer", 7, time.Time{})
		digests := newLimiter(t, d.store, []limiter.Option{limiter.WithKeyDigest(secret)}, overrides.WithKeyDigest(secret))
		wantLimit(t, digests, "customer", 5)
		wantLimit(t, newLimiter(t, d.store, nil), "customer", 7)

		long := strings.Repeat("k", 300)
		if stored, err = limiter.StoredKey(long, nil); err != nil {
			t.Fatal(err)
		}
		d.set(t, stored, 9, time.Time{})
		wantLimit(t, newLimiter(t, d.store, nil), long, 9)
	})
}

func TestEveryKindOfOverrideIsRead(t *testing.T) {
	onStores(t, func(t *testing.T, d database) {
		d.exec(t, `INSERT INTO limiter_overrides (limiter, key, kind, capacity, refill, period, note, expires_at) VALUES
			('kinds', $1, 'bucket', 5, 4, 3000000000, NULL, NULL),
			('kinds', $2, 'window', 5, NULL, 3000000000, 'by Ann', 4000000000000000000),
			('kinds', $3, 'window_counting', 5, NULL, 3000000000, '', NULL),
			('others', $1, 'bucket', 5, 4, 3000000000, NULL, NULL)`, []byte{0, 0xff}, []byte("b"), []byte("ä"))
		want := []limiter.Override{
			{Key: "\x00\xff", Policy: limiter.TokenBucket{Capacity: 5, Refill: 4, Interval: 3 * time.Second}},
			{Key: "b", Policy: limiter.FixedWindow{Limit: 5, Window: 3 * time.Second}, Note: "by Ann", ExpiresAt: time.Unix(4_000_000_000, 0)},
			{Key: "ä", Policy: limiter.FixedWindow{Limit: 5, Window: 3 * time.Second, CountRejected: true}},
		}
		for limit := 1; limit <= 4; limit++ {
			got, err := d.store.Overrides(t.Context(), "kinds", limit)
			if n := min(limit, len(want)); err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want[:n]) {
				t.Errorf("at most %d overrides: %+v, %v; want %+v", limit, got, err, want[:n])
			}
		}
		if got, err := d.store.Overrides(t.Context(), "none", 10); err != nil || len(got) != 0 {
			t.Errorf("overrides of a limiter without any: %v, %v", got, err)
		}
		if _, err := d.store.Overrides(t.Context(), "kinds", 0); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("at most 0 overrides: %v, want ErrInvalid", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := d.store.Overrides(ended, "kinds", 10); !errors.Is(err, limiter.ErrCanceled) {
			t.Errorf("with a context that has ended: %v, want ErrCanceled", err)
		}
	})
}

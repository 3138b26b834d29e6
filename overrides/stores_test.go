package overrides_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
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

// database is a database with the tables of limiter.
type database struct {
	db    *sql.DB
	store sqlStore
	other sqlStore // of another process
}

// TestStores runs the same tests on both SQL stores. In PostgreSQL the tables are in a schema of their own.
func TestStores(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "limiter.db")
		open := func() *sqlite.Store {
			store, err := sqlite.Open(path)
			must(t, err)
			t.Cleanup(func() { _ = store.Close() })
			return store
		}
		store := open()
		must(t, migrations.Up(t.Context(), migrations.SQLite, store.DB()))
		testStore(t, database{store.DB(), store, open()})
	})
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		t.Parallel()
		dsn := server.Database(t)
		db, err := sql.Open("pgx", dsn+"&search_path=limits")
		must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		d := database{db: db}
		d.exec(t, "CREATE SCHEMA limits")
		must(t, migrations.Up(t.Context(), migrations.Postgres, db, migrations.WithSchema("limits")))
		open := func() *postgres.Store {
			store, err := postgres.Open(dsn, postgres.WithSchema("limits"))
			must(t, err)
			t.Cleanup(func() { _ = store.Close() })
			return store
		}
		d.store, d.other = open(), open()
		testStore(t, d)
		t.Run("callers leave while the table is locked", d.locked)
	})
}

func testStore(t *testing.T, d database) {
	t.Run("every kind is read", d.kinds)
	t.Run("a change takes effect after MaxAge, in every process", d.changes)
	t.Run("an override ends at its expiry", d.expiry)
	t.Run("a failed read keeps the old overrides", d.fails)
	t.Run("10,000 overrides are the most", d.most)
}

func (d database) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := d.db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// set sets an override of a bucket that refills within a minute. The zero time means never.
func (d database) set(t *testing.T, name, key string, capacity int64, expires time.Time) {
	t.Helper()
	var at any
	if !expires.IsZero() {
		at = expires.UnixNano()
	}
	d.exec(t, `INSERT INTO limiter_overrides (limiter, key, kind, capacity, refill, period, note, expires_at)
		VALUES ($1, $2, 'bucket', $3, $3, 60000000000, 'a note', $4)
		ON CONFLICT (limiter, key) DO UPDATE SET capacity = excluded.capacity, refill = excluded.refill, expires_at = excluded.expires_at`,
		name, []byte(key), capacity, at)
}

// newLimiter returns a limiter of 2 a minute with the overrides of a store.
func newLimiter(t *testing.T, store sqlStore, name string, opts ...overrides.Option) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(store, name, limiter.PerMinute(2), limiter.WithTimeout(time.Minute),
		limiter.WithPolicyFor(overrides.New(store, name, append(opts, overrides.MaxAge(10*time.Second))...)))
	must(t, err)
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

func (d database) kinds(t *testing.T) {
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
		t.Errorf("overrides of a limiter without any: %v, %v; want none", got, err)
	}
	if _, err := d.store.Overrides(t.Context(), "kinds", 0); !errors.Is(err, limiter.ErrInvalid) {
		t.Errorf("at most 0 overrides: %v, want ErrInvalid", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.store.Overrides(ended, "kinds", 10); !errors.Is(err, limiter.ErrCanceled) {
		t.Errorf("with a context that has ended: %v, want ErrCanceled", err)
	}
}

func (d database) changes(t *testing.T) {
	clock := newClocks()
	one, other := newLimiter(t, d.store, "changes", clock.option()), newLimiter(t, d.other, "changes", clock.option())
	for i, want := range []bool{true, true, false} {
		if r, err := one.Allow(t.Context(), "k"); err != nil || r.Allowed != want {
			t.Errorf("request %d: %+v, %v; want allowed %t", i, r, err, want)
		}
	}
	clock.advance(5 * time.Second)
	wantLimit(t, other, "k", 2)
	d.set(t, "changes", "k", 60_000_000, time.Time{}) // a token each microsecond
	clock.advance(5*time.Second - 1)
	wantLimit(t, one, "k", 2)
	clock.advance(1)
	wantLimit(t, one, "k", 60_000_000)
	wantLimit(t, one, "without an override", 2)
	wantLimit(t, other, "k", 2)
	clock.advance(5 * time.Second)
	wantLimit(t, other, "k", 60_000_000)
	must(t, other.Wait(t.Context(), "k")) // nothing was left, which carries over
}

func (d database) expiry(t *testing.T) {
	clock := newClocks()
	clock.wall = time.Now()
	l := newLimiter(t, d.store, "expiry", clock.option())
	d.set(t, "expiry", "past", 5, clock.wall.Add(-time.Hour))
	d.set(t, "expiry", "ends", 5, clock.wall.Add(time.Hour))
	d.set(t, "expiry", "never", 5, time.Time{})
	wantLimit(t, l, "past", 2)
	wantLimit(t, l, "ends", 5)
	clock.move(time.Hour, 0)
	wantLimit(t, l, "ends", 2)
	wantLimit(t, l, "never", 5)
}

func (d database) fails(t *testing.T) {
	clock, seen := newClocks(), &reported{}
	d.exec(t, "ALTER TABLE limiter_overrides RENAME TO away")
	l := newLimiter(t, d.store, "fails", clock.option(), seen.option())
	wantLimit(t, l, "k", 2)
	d.exec(t, "ALTER TABLE away RENAME TO limiter_overrides")
	d.set(t, "fails", "k", 5, time.Time{})
	clock.advance(10 * time.Second)
	wantLimit(t, l, "k", 5)
	d.exec(t, "ALTER TABLE limiter_overrides RENAME TO away")
	clock.advance(10 * time.Second)
	wantLimit(t, l, "k", 5)
	d.exec(t, "ALTER TABLE away RENAME TO limiter_overrides")
	if len(seen.errs) != 2 {
		t.Errorf("OnError got %v, want two errors", seen.errs)
	}
	for _, err := range seen.errs {
		if !errors.Is(err, limiter.ErrMisconfigured) || !strings.Contains(err.Error(), "migration 1") || !strings.Contains(err.Error(), "migrations.Up") {
			t.Errorf("OnError got %v, want ErrMisconfigured and what to do", err)
		}
	}
}

func (d database) most(t *testing.T) {
	clock, seen := newClocks(), &reported{}
	tx, err := d.db.BeginTx(t.Context(), nil)
	must(t, err)
	for i := range 10_000 {
		_, err := tx.ExecContext(t.Context(), `INSERT INTO limiter_overrides (limiter, key, kind, capacity, refill, period)
			VALUES ('most', $1, 'bucket', 5, 5, 60000000000)`, fmt.Appendf(nil, "key %d", i))
		must(t, err)
	}
	must(t, tx.Commit())
	l := newLimiter(t, d.store, "most", clock.option(), seen.option())
	seen.readInTime(t, clock, l)
	wantLimit(t, l, "key 9999", 5)
	if len(seen.errs) != 0 {
		t.Errorf("OnError got %v, want nothing", seen.errs)
	}
	d.set(t, "most", "one more", 5, time.Time{})
	clock.advance(10 * time.Second)
	seen.readInTime(t, clock, l)
	wantLimit(t, l, "key 9999", 5)
	wantLimit(t, l, "one more", 2)
	if len(seen.errs) != 1 || !strings.Contains(seen.errs[0].Error(), "10000 overrides") {
		t.Errorf("OnError got %v, want that there are too many", seen.errs)
	}
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

func (d database) locked(t *testing.T) {
	d.set(t, "locked", "k", 5, time.Time{})
	tx, err := d.db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "LOCK TABLE limiter_overrides IN ACCESS EXCLUSIVE MODE")
	must(t, err)
	l := newLimiter(t, d.store, "locked")
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
	wantLimit(t, l, "k", 5) // by the read that the first caller began
	if n := d.store.(*postgres.Store).Stats().ConnectionsLost; n != 0 {
		t.Errorf("%d connections lost, want none", n)
	}
}

//go:build unix

package main_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

// shared is the PostgreSQL that superuser started, or nil.
var shared *daemon.Postgres

// clusterSettings give up durability for speed: the tests delete the data.
var clusterSettings = []string{"fsync=off", "full_page_writes=off", "max_connections=100", "shared_buffers=32MB"}

// superuser starts the PostgreSQL that all tests share, once, and returns the URL of its superuser.
var superuser = sync.OnceValues(func() (string, error) {
	if dsn := os.Getenv("LIMITER_TEST_POSTGRES_DSN"); dsn != "" {
		return dsn, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := daemon.StartPostgres(ctx, "", clusterSettings...)
	if err != nil {
		return "", err
	}
	shared = p
	return p.DSN, nil
})

// emptyPostgres makes a database on the shared server for this test, and returns its URL.
func emptyPostgres(t *testing.T) string {
	t.Helper()
	testenv.SkipShort(t)
	admin, err := superuser()
	if err != nil {
		testenv.Unavailable(t, "postgres", err)
	}
	name := fmt.Sprintf("cli_%d_%d", os.Getpid(), time.Now().UnixNano())
	execute(t, admin, "CREATE DATABASE "+name+" TEMPLATE template0")
	t.Cleanup(func() { execute(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	u, err := url.Parse(admin)
	must(t, err)
	u.Path = "/" + name
	return u.String()
}

// execute runs statements on a PostgreSQL, as one simple query each.
func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, url)
	must(t, err)
	defer conn.Close(ctx)
	for _, s := range statements {
		must(t, testenv.ErrorOf(conn.PgConn().Exec(ctx, s).ReadAll()))
	}
}

// target is a database with all tables.
type target struct {
	url   string
	store limiter.Store
	exec  func(t *testing.T, statements ...string)
}

// migratedPostgres returns a PostgreSQL with all tables.
func migratedPostgres(t *testing.T) target {
	t.Helper()
	url := emptyPostgres(t)
	succeeds(t, url, "migrate", "up")
	store, err := postgres.Open(url)
	must(t, err)
	t.Cleanup(func() { store.Close() })
	return target{url, store, func(t *testing.T, statements ...string) { t.Helper(); execute(t, url, statements...) }}
}

// migratedSQLite returns a SQLite file with all tables.
func migratedSQLite(t *testing.T) target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	store, err := sqlite.Open(path)
	must(t, err)
	t.Cleanup(func() { store.Close() })
	must(t, migrations.Up(t.Context(), migrations.SQLite, store.DB()))
	return target{"sqlite:" + path, store, func(t *testing.T, statements ...string) {
		t.Helper()
		for _, s := range statements {
			must(t, testenv.ErrorOf(store.DB().ExecContext(t.Context(), s)))
		}
	}}
}

// onBoth runs a test on PostgreSQL and on SQLite.
func onBoth(t *testing.T, f func(t *testing.T, db target)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, migratedPostgres(t)) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, migratedSQLite(t)) })
}

// use takes n from a key.
func use(t *testing.T, store limiter.Store, name string, p limiter.Policy, key string, n int64, opts ...limiter.Option) {
	t.Helper()
	l, err := limiter.New(store, name, p, append([]limiter.Option{limiter.WithTimeout(10 * time.Second)}, opts...)...)
	must(t, err)
	if res, err := l.AllowN(t.Context(), key, n); err != nil || !res.Allowed {
		t.Fatalf("AllowN: %+v, %v", res, err)
	}
}

// bucket and window are policies that lose nothing while a test runs.
var (
	bucket = limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: 24 * time.Hour}
	window = limiter.FixedWindow{Limit: 10, Window: 365 * 24 * time.Hour}

	slidingWindow = limiter.SlidingWindow{Limit: 10, Window: 24 * time.Hour}
)

// newRole makes a role that may do nothing but what grants allow, and returns its URL. %s in a grant
// stands for its name.
func newRole(t *testing.T, db target, grants ...string) string {
	t.Helper()
	name := fmt.Sprintf("cli_role_%d", time.Now().UnixNano())
	db.exec(t, "CREATE ROLE "+name+" LOGIN PASSWORD 'secret'")
	t.Cleanup(func() { db.exec(t, "DROP OWNED BY "+name, "DROP ROLE "+name) })
	for _, g := range grants {
		db.exec(t, fmt.Sprintf(g, name))
	}
	at := strings.Index(db.url, "@")
	return "postgres://" + name + ":secret" + db.url[at:]
}

package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // driver "sqlite"; example_postgres_test.go has "pgx"

	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

// childDSN, if set, makes this program one of several processes that migrate the same SQLite file.
const childDSN = "LIMITER_TEST_MIGRATIONS_CHILD_DSN"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childDSN); dsn != "" {
		os.Exit(child(dsn))
	}
	dbtest.Main(m)
}

// child migrates when all processes are ready.
func child(dsn string) int {
	db, err := sql.Open("sqlite", dsn)
	if err = errors.Join(err, testenv.AwaitStart()); err == nil {
		err = migrations.Up(context.Background(), migrations.SQLite, db)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// database is an empty database of one test.
type database struct {
	*sql.DB
	dialect migrations.Dialect
	dsn     string // for open
	schema  string // PostgreSQL: where dump looks
}

// open returns a further handle on the same database.
func (d database) open(t *testing.T, params ...string) *sql.DB {
	t.Helper()
	driver := "pgx"
	if d.dialect == migrations.SQLite {
		driver = "sqlite"
	}
	db, err := sql.Open(driver, with(d.dsn, params...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// with adds parameters to a DSN: name, value, name, value.
func with(dsn string, params ...string) string {
	for i := 0; i < len(params); i += 2 {
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		// %20, because pgx takes a plus sign for what it is.
		dsn += separator + params[i] + "=" + strings.ReplaceAll(url.QueryEscape(params[i+1]), "+", "%20")
	}
	return dsn
}

// onSQLite returns an empty SQLite database in a file.
func onSQLite(t *testing.T) database {
	t.Helper()
	d := database{dialect: migrations.SQLite, dsn: "file:" + filepath.Join(t.TempDir(), "limiter.db")}
	d.DB = d.open(t, "_pragma", "busy_timeout(5000)")
	return d
}

// onPostgres runs f on an empty database of every PostgreSQL that there is.
func onPostgres(t *testing.T, f func(t *testing.T, d database)) {
	t.Helper()
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		t.Parallel()
		d := database{dialect: migrations.Postgres, dsn: server.Database(t), schema: "public"}
		d.DB = d.open(t)
		f(t, d)
	})
}

// onEach runs f on an empty database of every kind.
func onEach(t *testing.T, f func(t *testing.T, d database)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(t, onSQLite(t))
	})
	onPostgres(t, f)
}

// run runs statements that must succeed.
func run(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func (d database) up(t *testing.T, opts ...migrations.Option) {
	t.Helper()
	if err := migrations.Up(t.Context(), d.dialect, d.DB, opts...); err != nil {
		t.Fatalf("Up: %v", err)
	}
}

func (d database) down(t *testing.T, opts ...migrations.Option) {
	t.Helper()
	if err := migrations.Down(t.Context(), d.dialect, d.DB, opts...); err != nil {
		t.Fatalf("Down: %v", err)
	}
}

// wantApplied fails the test unless all migrations have been applied, or none.
func (d database) wantApplied(t *testing.T, want bool, opts ...migrations.Option) {
	t.Helper()
	list, err := migrations.Status(t.Context(), d.dialect, d.DB, opts...)
	if err != nil {
		t.Fatalf("Status: %v", err)
	}
	if len(list) == 0 {
		t.Fatal("Status lists no migration")
	}
	for i, m := range list {
		if m.Version != int64(i+1) || !strings.HasPrefix(m.Name, fmt.Sprintf("%05d_", i+1)) {
			t.Errorf("migration %d: version %d, name %q", i+1, m.Version, m.Name)
		}
		if m.Applied != want || m.AppliedAt.IsZero() == want {
			t.Errorf("%s: applied %t at %v, want applied %t", m.Name, m.Applied, m.AppliedAt, want)
		}
	}
}

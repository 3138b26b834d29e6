package migrations_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // driver "sqlite"; example_test.go has "pgx"

	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

var must = testenv.Must

func TestMain(m *testing.M) { dbtest.Main(m) }

// database is an empty database of one test, or a schema in it.
type database struct {
	*sql.DB
	dialect migrations.Dialect
	dsn     string // for open
	schema  string // PostgreSQL: where dump looks
	opts    []migrations.Option
}

// open returns another handle on the same database.
func (d database) open(t *testing.T, params ...string) *sql.DB {
	t.Helper()
	driver := "pgx"
	if d.dialect == migrations.SQLite {
		driver = "sqlite"
	}
	db, err := sql.Open(driver, with(d.dsn, params...))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// in creates a schema of PostgreSQL if it does not exist. It returns the database with the schema as the
// place of the tables.
func (d database) in(t *testing.T, schema string) database {
	t.Helper()
	run(t, d.DB, `CREATE SCHEMA IF NOT EXISTS "`+schema+`"`)
	d.schema, d.opts = schema, []migrations.Option{migrations.WithSchema(schema)}
	d.DB = d.open(t, "search_path", `"`+schema+`"`)
	return d
}

// with adds parameters to a DSN: name, value, name, value.
func with(dsn string, params ...string) string {
	for i := 0; i < len(params); i += 2 {
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		// %20, because pgx does not read a plus sign as a space.
		dsn += separator + params[i] + "=" + strings.ReplaceAll(url.QueryEscape(params[i+1]), "+", "%20")
	}
	return dsn
}

func onSQLite(t *testing.T) database {
	t.Helper()
	d := database{dialect: migrations.SQLite, dsn: "file:" + filepath.Join(t.TempDir(), "limiter.db")}
	d.DB = d.open(t, "_pragma", "busy_timeout(5000)")
	return d
}

// onPostgres runs f on an empty database of each PostgreSQL server.
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

func run(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func (d database) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := d.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (d database) up(t *testing.T) {
	t.Helper()
	must(t, migrations.Up(t.Context(), d.dialect, d.DB, d.opts...))
}

func (d database) down(t *testing.T) {
	t.Helper()
	must(t, migrations.Down(t.Context(), d.dialect, d.DB, d.opts...))
}

// wantApplied fails the test unless all migrations have been applied, or none.
func (d database) wantApplied(t *testing.T, want bool) {
	t.Helper()
	list, err := migrations.Status(t.Context(), d.dialect, d.DB, d.opts...)
	if err != nil || len(list) == 0 {
		t.Fatalf("Status: %v, %v; want at least one migration", list, err)
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

// wantUsable fails the test unless Check passes, each version is recorded once, and a second Up changes
// nothing.
func (d database) wantUsable(t *testing.T) {
	t.Helper()
	must(t, d.check(t))
	d.wantApplied(t, true)
	d.wantRecordedOnce(t)
	before := d.everything(t)
	d.up(t)
	d.wantUnchanged(t, before)
}

func (d database) check(t *testing.T) error {
	t.Helper()
	if d.dialect == migrations.SQLite {
		store, err := sqlite.Open(strings.TrimPrefix(d.dsn, "file:"))
		must(t, err)
		defer store.Close()
		return store.Check(t.Context())
	}
	store, err := postgres.Open(d.dsn, postgres.WithSchema(d.schema))
	must(t, err)
	defer store.Close()
	return store.Check(t.Context())
}

func (d database) wantRecordedOnce(t *testing.T) {
	t.Helper()
	var rows, versions int
	err := d.QueryRowContext(t.Context(), `SELECT count(*), count(DISTINCT version_id) FROM limiter_goose_version`).Scan(&rows, &versions)
	if err != nil || rows != versions || rows < 2 {
		t.Errorf("the version table has %d rows for %d versions (%v), want one for each", rows, versions, err)
	}
}

// everything describes the objects and the rows of the version table.
func (d database) everything(t *testing.T) string {
	t.Helper()
	text := d.dump(t)
	if !strings.Contains(text, "limiter_goose_version") {
		return text
	}
	rows, err := d.QueryContext(t.Context(), `SELECT version_id FROM limiter_goose_version ORDER BY id`)
	if err != nil {
		return text + err.Error() // not goose's table
	}
	defer rows.Close()
	for rows.Next() {
		var version int64
		must(t, rows.Scan(&version))
		text += fmt.Sprintf("version %d\n", version)
	}
	must(t, rows.Err())
	return text
}

// wantUnchanged fails the test unless everything is as it was before.
func (d database) wantUnchanged(t *testing.T, before string) {
	t.Helper()
	testenv.Equal(t, d.everything(t), before, "the database")
}

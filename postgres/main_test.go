package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata" // where the machine has none

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	goosedb "github.com/pressly/goose/v3/database"

	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
)

// All tests run in a time zone that is no whole number of hours off, with its own summer
// time: nothing must depend on it.
func TestMain(m *testing.M) {
	chatham, err := time.LoadLocation("Pacific/Chatham")
	if err != nil {
		panic(err)
	}
	time.Local = chatham
	dbtest.Main(m)
}

// database is a database of one test, with a schema for each store in it.
type database struct {
	dsn    string
	db     *sql.DB
	shared bool // others use it, so the schemas go when the test ends
	citus  bool // it is the coordinator of a Citus cluster
}

var schemas atomic.Int64

func newDatabase(t *testing.T, server *dbtest.Server) *database {
	t.Helper()
	return openDatabase(t, server.Database(t))
}

func openDatabase(t testing.TB, dsn string) *database {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return &database{dsn: dsn, db: db}
}

// schema makes the tables of the version that Check wants in a schema of their own, without goose's provider,
// which takes three times as long. An operation that needs a later version fails. On a Citus cluster it distributes
// the tables, as docs/citus.md says.
func (d *database) schema(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("s%d", schemas.Add(1))
	if d.shared {
		name = "limiter_test_" + strings.ToLower(rand.Text())
		t.Cleanup(func() {
			if _, err := d.db.ExecContext(context.WithoutCancel(t.Context()), "DROP SCHEMA IF EXISTS "+name+" CASCADE"); err != nil {
				t.Errorf("drop the schema: %v", err)
			}
		})
	}
	d.exec(t, "CREATE SCHEMA "+name)
	entries, err := migrations.FS.ReadDir("postgres")
	must(t, err)
	for _, e := range entries[:postgres.SchemaVersion] { // in the order of their names
		text, err := migrations.FS.ReadFile("postgres/" + e.Name())
		must(t, err)
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		d.exec(t, strings.ReplaceAll(up, "/* schema */", name+"."))
	}
	versions, err := goosedb.NewStore(goosedb.DialectPostgres, name+".limiter_goose_version")
	must(t, err)
	must(t, versions.CreateVersionTable(t.Context(), d.db))
	for version := range int64(postgres.SchemaVersion + 1) {
		must(t, versions.Insert(t.Context(), d.db, goosedb.InsertRequest{Version: version}))
	}
	if d.citus {
		for _, table := range tables.All {
			d.exec(t, fmt.Sprintf("SELECT create_distributed_table('%s.%s', 'key', shard_count := 8)", name, table.Name))
		}
	}
	return name
}

func (d *database) exec(t testing.TB, sql string) {
	t.Helper()
	if _, err := d.db.ExecContext(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// pool opens a pool on dsn with changes.
func pool(t testing.TB, dsn string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config := parse(t, dsn)
	if change != nil {
		change(config)
	}
	p, err := pgxpool.NewWithConfig(context.Background(), config)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

func parse(t testing.TB, dsn string) *pgxpool.Config {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	must(t, err)
	return config
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

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
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx", for the migrations

	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/migrations"
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

// schema makes the tables in a schema of their own. On a Citus cluster it distributes them, as
// docs/citus.md says.
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
	must(t, migrations.Up(t.Context(), migrations.Postgres, d.db, migrations.WithSchema(name)))
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

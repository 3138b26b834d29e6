package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata" // where the machine has none

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx", for the migrations

	"github.com/sqlimit/limiter/internal/dbtest"
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
	dsn   string
	db    *sql.DB
	citus bool // it is the coordinator of a Citus cluster
}

var schemas atomic.Int64

func newDatabase(t *testing.T, server *dbtest.Server) *database {
	t.Helper()
	d := &database{dsn: server.Database(t)}
	db, err := sql.Open("pgx", d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	d.db = db
	return d
}

// schema makes the tables in a schema of their own.
func (d *database) schema(t *testing.T) string {
	t.Helper()
	if d.citus {
		return d.distribute(t)
	}
	name := fmt.Sprintf("s%d", schemas.Add(1))
	d.exec(t, "CREATE SCHEMA "+name)
	if err := migrations.Up(t.Context(), migrations.Postgres, d.db, migrations.WithSchema(name)); err != nil {
		t.Fatal(err)
	}
	return name
}

func (d *database) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := d.db.ExecContext(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// pool opens a pool on dsn with changes.
func pool(t *testing.T, dsn string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(config)
	}
	p, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

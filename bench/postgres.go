package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/migrations"
)

// database is a PostgreSQL database with schemas of this run, and the pool that all contenders share.
type database struct {
	*pgxpool.Pool
	dsn    string
	prefix string
}

// startPostgres connects to the database. Without -postgres it starts the newest PostgreSQL of this machine
// with its defaults, so that commits are durable, but with room for more connections: growth opens 112.
func (b *backends) startPostgres(ctx context.Context) {
	dsn := b.postgres
	if dsn == "" {
		starting, cancel := context.WithTimeout(ctx, load.Grace)
		defer cancel()
		server, err := daemon.StartPostgres(starting, b.temp, "max_connections=200")
		if err != nil {
			must(fmt.Errorf("start PostgreSQL, or pass -postgres: %w", err))
		}
		b.atClose(server.Stop)
		dsn = server.DSN
	}
	b.pg = &database{newPool(ctx, dsn, b.pool), dsn, b.prefix}
	b.atClose(b.pg.close)
}

func newPool(ctx context.Context, dsn string, connections int) *pgxpool.Pool {
	config := try(pgxpool.ParseConfig(dsn))
	config.MaxConns, config.MinConns = int32(connections), int32(connections)
	pool := try(pgxpool.NewWithConfig(ctx, config))
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		must(fmt.Errorf("PostgreSQL: %w", err))
	}
	return pool
}

func (d *database) exec(ctx context.Context, statement string) {
	if _, err := d.Exec(ctx, statement); err != nil {
		must(fmt.Errorf("%s: %w", statement, err))
	}
}

// schema makes a schema of this run, unless it is there, and returns its name.
func (d *database) schema(ctx context.Context, name string) string {
	schema := d.prefix + "_" + name
	d.exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema)
	return schema
}

// migrated is a schema with the tables of limiter.
func (d *database) migrated(ctx context.Context, name string) string {
	schema := d.schema(ctx, name)
	db := try(sql.Open("pgx", d.dsn))
	defer db.Close()
	must(migrations.Up(ctx, migrations.Postgres, db, migrations.WithSchema(schema)))
	return schema
}

// table makes a table, with room on its pages for updates as the tables of limiter have it.
func (d *database) table(ctx context.Context, name, columns string) string {
	table := d.schema(ctx, "by_hand") + "." + name
	d.exec(ctx, fmt.Sprintf("CREATE TABLE %s (%s) WITH (fillfactor = 70)", table, columns))
	return table
}

func (d *database) drop(ctx context.Context, schema string) {
	d.exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
}

// close removes all schemas of this run, and closes the pool.
func (d *database) close() (err error) {
	defer catch(&err)
	defer d.Close()
	ctx, cancel := context.WithTimeout(context.Background(), load.Grace)
	defer cancel()
	rows := try(d.Query(ctx, "SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname, $1)", d.prefix+"_"))
	for _, schema := range try(pgx.CollectRows(rows, pgx.RowTo[string])) {
		d.drop(ctx, schema)
	}
	return nil
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/migrations"
)

// database is a PostgreSQL database with schemas of this run, and the pool that all contenders share.
type database struct {
	*pgxpool.Pool
	dsn     string
	prefix  string
	schemas map[string]bool
}

// startPostgres connects to the database. Without -postgres it starts the newest PostgreSQL of this machine
// with its defaults, so that commits are durable, but with room for more connections: growth opens 112.
func (b *backends) startPostgres(ctx context.Context) (err error) {
	d := &database{dsn: b.postgres, prefix: b.prefix, schemas: make(map[string]bool)}
	if d.dsn == "" {
		starting, cancel := context.WithTimeout(ctx, load.Grace)
		defer cancel()
		server, err := daemon.StartPostgres(starting, b.temp, "max_connections=200")
		if err != nil {
			return fmt.Errorf("start PostgreSQL, or pass -postgres: %w", err)
		}
		b.atClose(server.Stop)
		d.dsn = server.DSN
	}
	if d.Pool, err = newPool(ctx, d.dsn, b.pool); err != nil {
		return err
	}
	b.atClose(d.close)
	b.pg = d
	return nil
}

func newPool(ctx context.Context, dsn string, connections int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = int32(connections), int32(connections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("PostgreSQL: %w", err)
	}
	return pool, nil
}

// schema makes a schema of this run, unless it is there, and returns its name.
func (d *database) schema(ctx context.Context, name string) (schema string, created bool, err error) {
	schema = d.prefix + "_" + name
	if d.schemas[schema] {
		return schema, false, nil
	}
	if _, err := d.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		return "", false, err
	}
	d.schemas[schema] = true
	return schema, true, nil
}

func (d *database) migrated(ctx context.Context, name string) (schema string, err error) {
	schema, created, err := d.schema(ctx, name)
	if err != nil || !created {
		return schema, err
	}
	db, err := sql.Open("pgx", d.dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()
	return schema, migrations.Up(ctx, migrations.Postgres, db, migrations.WithSchema(schema))
}

// table makes a table, with room on its pages for updates as the tables of limiter have it.
func (d *database) table(ctx context.Context, name, columns string) (string, error) {
	schema, _, err := d.schema(ctx, "by_hand")
	if err != nil {
		return "", err
	}
	table := schema + "." + name
	_, err = d.Exec(ctx, fmt.Sprintf("CREATE TABLE %s (%s) WITH (fillfactor = 70)", table, columns))
	return table, err
}

func (d *database) drop(ctx context.Context, schema string) error {
	_, err := d.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
	if err == nil {
		delete(d.schemas, schema)
	}
	return err
}

// close removes all schemas of this run, and closes the pool.
func (d *database) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), load.Grace)
	defer cancel()
	var errs []error
	for schema := range d.schemas {
		errs = append(errs, d.drop(ctx, schema))
	}
	d.Close()
	return errors.Join(errs...)
}

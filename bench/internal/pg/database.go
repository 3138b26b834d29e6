// Package pg starts a PostgreSQL, and keeps what a benchmark needs in a database.
package pg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/migrations"
)

const (
	// startTimeout is how long a server may take until it answers.
	startTimeout = time.Minute
	// dropTimeout is how long it may take to remove what a run made.
	dropTimeout = time.Minute
)

// Database is a database with schemas of one run, and a pool.
type Database struct {
	Pool *pgxpool.Pool
	DSN  string

	prefix  string
	schemas map[string]bool
	server  *daemon.Postgres // nil if it was there before
}

// Open connects to a database, with a pool of so many connections. The names of schemas begin with
// prefix. If dsn is empty, Open starts the newest PostgreSQL of this machine in dir, with its defaults
// (commits are durable), but with room for more connections: growth opens 112.
func Open(ctx context.Context, dsn, dir, prefix string, connections int) (*Database, error) {
	d := &Database{DSN: dsn, prefix: prefix, schemas: make(map[string]bool)}
	if dsn == "" {
		starting, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		var err error
		if d.server, err = daemon.StartPostgres(starting, dir, "max_connections=200"); err != nil {
			return nil, fmt.Errorf("start PostgreSQL, or pass -postgres: %w", err)
		}
		d.DSN = d.server.DSN
	}
	var err error
	if d.Pool, err = d.NewPool(ctx, connections); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// NewPool returns another pool on the same database.
func (d *Database) NewPool(ctx context.Context, connections int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(d.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(connections)
	config.MinConns = config.MaxConns
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

// Schema makes a schema of this run, and returns its name.
func (d *Database) Schema(ctx context.Context, name string) (schema string, created bool, err error) {
	schema = d.prefix + "_" + name
	if d.schemas[schema] {
		return schema, false, nil
	}
	if _, err := d.Pool.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		return "", false, err
	}
	d.schemas[schema] = true
	return schema, true, nil
}

// Migrated returns a schema with the tables of limiter.
func (d *Database) Migrated(ctx context.Context, name string) (schema string, err error) {
	schema, created, err := d.Schema(ctx, name)
	if err != nil || !created {
		return schema, err
	}
	db, err := sql.Open("pgx", d.DSN)
	if err != nil {
		return "", err
	}
	defer db.Close()
	return schema, migrations.Up(ctx, migrations.Postgres, db, migrations.WithSchema(schema))
}

// Drop removes a schema of this run.
func (d *Database) Drop(ctx context.Context, schema string) error {
	_, err := d.Pool.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
	if err == nil {
		delete(d.schemas, schema)
	}
	return err
}

// Close removes all that the run made, and closes the pool.
func (d *Database) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	var errs []error
	for schema := range d.schemas {
		errs = append(errs, d.Drop(ctx, schema))
	}
	d.Pool.Close()
	return errors.Join(append(errs, d.stop())...)
}

// stop ends the server that Open started.
func (d *Database) stop() error {
	if d.server == nil {
		return nil
	}
	return d.server.Stop()
}

// Describe returns the version of the server and the settings that figures depend on, or nothing if it
// cannot be asked.
func (d *Database) Describe(ctx context.Context) string {
	var version, commit, fsync, buffers string
	err := d.Pool.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('synchronous_commit'),
		current_setting('fsync'), current_setting('shared_buffers')`).Scan(&version, &commit, &fsync, &buffers)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s; synchronous_commit = %s, fsync = %s, shared_buffers = %s; a pool of %d connections",
		version, commit, fsync, buffers, d.Pool.Config().MaxConns)
}

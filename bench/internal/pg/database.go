package pg

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter/migrations"
)

// dropTimeout is how long it may take to remove what a run made.
const dropTimeout = time.Minute

// Database is a database with schemas of one run, and a pool.
type Database struct {
	Pool *pgxpool.Pool

	dsn, prefix string
	schemas     map[string]bool
}

// Open connects to a database, with a pool of so many connections. The names of schemas begin with prefix.
func Open(ctx context.Context, dsn, prefix string, connections int) (*Database, error) {
	d := &Database{dsn: dsn, prefix: prefix, schemas: make(map[string]bool)}
	var err error
	d.Pool, err = d.NewPool(ctx, connections)
	return d, err
}

// NewPool returns another pool on the same database.
func (d *Database) NewPool(ctx context.Context, connections int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(d.dsn)
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
	db, err := sql.Open("pgx", d.dsn)
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
	defer d.Pool.Close()
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	for schema := range d.schemas {
		if err := d.Drop(ctx, schema); err != nil {
			return err
		}
	}
	return nil
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

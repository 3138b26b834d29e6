package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter/migrations"
)

// postgresBackend is a database, and the pool that all contenders on it share.
type postgresBackend struct {
	dsn, prefix string
	pool        *pgxpool.Pool
	schemas     map[string]bool
}

// postgres returns the database, which it connects to at the first call, and starts if need be.
func (b *backends) postgres(ctx context.Context) (*postgresBackend, error) {
	if b.pg != nil {
		return b.pg, nil
	}
	dsn := b.postgresDSN
	if dsn == "" {
		var err error
		if dsn, err = b.startPostgres(ctx); err != nil {
			return nil, err
		}
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(b.poolSize)
	config.MinConns = config.MaxConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	b.atClose(func() error { pool.Close(); return nil })
	if err := pool.Ping(ctx); err != nil {
		return nil, fmt.Errorf("PostgreSQL: %w", err)
	}
	pg := &postgresBackend{dsn: dsn, prefix: b.prefix, pool: pool, schemas: make(map[string]bool)}
	b.atClose(pg.drop)
	b.pg = pg
	return pg, nil
}

// schema makes a schema of this run, and returns its name.
func (pg *postgresBackend) schema(ctx context.Context, name string) (schema string, created bool, err error) {
	schema = pg.prefix + "_" + name
	if pg.schemas[schema] {
		return schema, false, nil
	}
	if _, err := pg.pool.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		return "", false, err
	}
	pg.schemas[schema] = true
	return schema, true, nil
}

// migrated returns a schema with the tables of limiter.
func (pg *postgresBackend) migrated(ctx context.Context, name string) (schema string, err error) {
	schema, created, err := pg.schema(ctx, name)
	if err != nil || !created {
		return schema, err
	}
	db, err := sql.Open("pgx", pg.dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()
	return schema, migrations.Up(ctx, migrations.Postgres, db, migrations.WithSchema(schema))
}

// table makes a table, with room on its pages for updates as the tables of limiter have it.
func (pg *postgresBackend) table(ctx context.Context, name, columns string) (string, error) {
	schema, _, err := pg.schema(ctx, "by_hand")
	if err != nil {
		return "", err
	}
	table := schema + "." + name
	_, err = pg.pool.Exec(ctx, fmt.Sprintf("CREATE TABLE %s (%s) WITH (fillfactor = 70)", table, columns))
	return table, err
}

// drop removes all that the run made.
func (pg *postgresBackend) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for schema := range pg.schemas {
		if _, err := pg.pool.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			return err
		}
	}
	return nil
}

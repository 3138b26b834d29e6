package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/storetest"
)

// BenchmarkStore measures on the server of LIMITER_TEST_POSTGRES_DSN, with the
// durability that it is set to: a container of the tests has fsync off.
func BenchmarkStore(b *testing.B) {
	dsn := os.Getenv("LIMITER_TEST_POSTGRES_DSN")
	if dsn == "" {
		b.Skip("LIMITER_TEST_POSTGRES_DSN is not set: there is no server to measure")
	}
	for name, opts := range map[string][]postgres.Option{"sync": nil, "async": {postgres.WithAsyncCommit()}} {
		b.Run(name, func(b *testing.B) {
			storetest.Bench(b, func(b *testing.B) limiter.Store { return benchStore(b, dsn, opts) })
		})
	}
}

// benchStore makes a store on a schema of its own, on a pool of 16.
func benchStore(b *testing.B, dsn string, opts []postgres.Option) limiter.Store {
	b.Helper()
	ctx := context.Background()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		b.Fatal(err)
	}
	schema := fmt.Sprintf("limiter_bench_%d_%d", os.Getpid(), schemas.Add(1))
	b.Cleanup(func() {
		if _, err := db.ExecContext(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			b.Errorf("drop schema: %v", err)
		}
		_ = db.Close()
	})
	if _, err := db.ExecContext(ctx, "CREATE SCHEMA "+schema); err != nil {
		b.Fatal(err)
	}
	if err := migrations.Up(ctx, migrations.Postgres, db, migrations.WithSchema(schema)); err != nil {
		b.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = 16
	p, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	store, err := postgres.New(p, append([]postgres.Option{postgres.WithSchema(schema)}, opts...)...)
	if err != nil {
		b.Fatal(err)
	}
	return store
}

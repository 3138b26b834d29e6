// Command path sends a lone take to PostgreSQL on a warm pool, and writes which code that executed to
// GOCOVERDIR. It must be built with -cover -covermode=atomic.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"runtime/coverage"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dsn, schema string) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.WithSchema(schema))
	if err != nil {
		return err
	}
	l, err := limiter.New(store, "api", limiter.PerHour(100))
	if err != nil {
		return err
	}
	for range 4 {
		if err := coverage.ClearCounters(); err != nil {
			return err
		}
		if res, err := l.Allow(ctx, "key"); err != nil || !res.Allowed {
			return fmt.Errorf("Allow = %+v, %w", res, err)
		}
	}
	return coverage.WriteCountersDir(os.Getenv("GOCOVERDIR"))
}

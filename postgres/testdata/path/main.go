// Command path sends a lone take to PostgreSQL on a warm pool, and writes which code that executed to
// GOCOVERDIR. It must be built with -cover -covermode=atomic.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime/coverage"
	"time"

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
	for range 20 {
		quick, err := takes(ctx, pool, schema)
		if err != nil {
			return err
		}
		if quick {
			return coverage.WriteCountersDir(os.Getenv("GOCOVERDIR"))
		}
	}
	return errors.New("the machine is too slow: four takes never took less than 100 ms")
}

// takes counts what the last of four takes executes. It reports whether they were so quick that no timer of
// the store has fired.
func takes(ctx context.Context, pool *pgxpool.Pool, schema string) (quick bool, err error) {
	begin := time.Now()
	store, err := postgres.New(pool, postgres.WithSchema(schema))
	if err != nil {
		return false, err
	}
	l, err := limiter.New(store, "api", limiter.PerHour(100))
	if err != nil {
		return false, err
	}
	for range 4 {
		if err := coverage.ClearCounters(); err != nil {
			return false, err
		}
		if res, err := l.Allow(ctx, "key"); err != nil || !res.Allowed {
			return false, fmt.Errorf("Allow = %+v, %w", res, err)
		}
	}
	return time.Since(begin) < 100*time.Millisecond, nil
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	"go.opentelemetry.io/otel/metric"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/otellimiter"
	"github.com/sqlimit/limiter/postgres"
)

// load decides on a database until ctx ends. In the middle it locks the tables, as a migration might.
func load(ctx context.Context, dsn string, provider metric.MeterProvider, duration time.Duration) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	defer func() { _ = db.Close() }()
	if err := migrations.Up(ctx, migrations.Postgres, db); err != nil {
		return err
	}
	store, err := postgres.Open(dsn)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if _, err := otellimiter.Watch(provider, store); err != nil {
		return err
	}
	observe := limiter.WithObserver(otellimiter.Observer(provider))
	search, err1 := limiter.New(store, "search", limiter.TokenBucket{Capacity: 20, Refill: 10, Interval: time.Second},
		observe, limiter.FailLocal(memory.New()))
	login, err2 := limiter.New(store, "login", limiter.PerMinute(5), observe, limiter.WithDenyCache(1000, time.Minute))
	export, err3 := limiter.New(store, "export", limiter.FixedWindow{Limit: 400, Window: 10 * time.Second}, observe)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	var group sync.WaitGroup
	callers := func(n int, pause time.Duration, l *limiter.Limiter, keys int, cost int64) {
		for range n {
			group.Go(func() {
				for ctx.Err() == nil {
					key := fmt.Sprintf("client %d", int(rand.ExpFloat64()*float64(keys)/4))
					_, _ = l.AllowN(ctx, key, 1+rand.Int64N(cost)) // the observer sees errors
					wait(ctx, time.Duration(rand.ExpFloat64()*float64(pause)))
				}
			})
		}
	}
	callers(32, 20*time.Millisecond, search, 100, 1)
	callers(4, 20*time.Millisecond, login, 50, 1)
	callers(4, 50*time.Millisecond, export, 3, 3)
	wait(ctx, duration/2)
	err = lock(ctx, db, duration/12)
	group.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// lock keeps the tables locked for d.
func lock(ctx context.Context, db *sql.DB, d time.Duration) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	if _, err := tx.ExecContext(ctx, "LOCK TABLE limiter_token_buckets, limiter_fixed_windows"); err != nil {
		return errors.Join(fmt.Errorf("picture: %w", err), tx.Rollback())
	}
	wait(ctx, d)
	return tx.Rollback()
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

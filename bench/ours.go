package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/borrow"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

// newLimiter returns a Limiter on store. It waits as long as its peers, who have no time limit: a thousand
// callers on a database with two cores may have to.
func newLimiter(store limiter.Store, name string, p policy) *limiter.Limiter {
	bucket := limiter.TokenBucket{Capacity: p.capacity, Refill: 1, Interval: p.step}
	return try(limiter.New(store, name, bucket, limiter.WithTimeout(30*time.Second)))
}

func take(ctx context.Context, l *limiter.Limiter, key string) error {
	res, err := l.Allow(ctx, key)
	if err == nil && !res.Allowed {
		err = fmt.Errorf("%q was refused", key)
	}
	return err
}

func ours(store limiter.Store, p policy) decider {
	l := newLimiter(store, p.name, p)
	return single(func(ctx context.Context, key string) (bool, error) {
		res, err := l.Allow(ctx, key)
		return res.Allowed, err
	})
}

func openPostgres(name string, opts ...postgres.Option) opener {
	return func(ctx context.Context, b *backends, p policy) decider {
		return ours(oursOnPostgres(ctx, b, name, opts...), p)
	}
}

// openStores spreads the decisions over a store for each connection, like processes with one connection each.
func openStores(ctx context.Context, b *backends, p policy) decider {
	stores, calls := make([]decider, b.pool), new(atomic.Int64)
	for i := range stores {
		stores[i] = ours(oursOnPostgres(ctx, b, "ours_stores"), p)
	}
	return func(ctx context.Context, keys []string) (int, error) {
		return stores[calls.Add(1)%int64(len(stores))](ctx, keys)
	}
}

// openAll decides over two limits at once: two buckets of each key.
func openAll(ctx context.Context, b *backends, p policy) decider {
	store := oursOnPostgres(ctx, b, "ours_all")
	first, second := newLimiter(store, p.name+"0", p), newLimiter(store, p.name+"1", p)
	return single(func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.AllowAll(ctx, limiter.Claim{Limiter: first, Key: key}, limiter.Claim{Limiter: second, Key: key})
		return res.Allowed, err
	})
}

func openBorrow(ctx context.Context, b *backends, p policy) decider {
	fast := try(borrow.New(oursOnPostgres(ctx, b, "ours_borrow"), 1000, time.Second))
	b.atClose(func() error { return fast.Shutdown(context.Background()) })
	return ours(fast, p)
}

// oursOnPostgres has tables of its own, as those of a peer would.
func oursOnPostgres(ctx context.Context, b *backends, name string, opts ...postgres.Option) *postgres.Store {
	return try(postgres.New(b.pg.Pool, append(opts, postgres.WithSchema(b.pg.migrated(ctx, name)))...))
}

func openSQLite(ctx context.Context, b *backends, p policy) decider {
	store := try(sqlite.Open(b.file("ours-" + p.name + ".db")))
	b.atClose(store.Close)
	must(migrations.Up(ctx, migrations.SQLite, store.DB()))
	return ours(store, p)
}

func openMemory(_ context.Context, _ *backends, p policy) decider { return ours(memory.New(), p) }

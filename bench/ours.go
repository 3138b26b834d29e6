package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/borrow"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

// newLimiter returns a Limiter on store. It waits as long as its peers, who have no time limit: a thousand
// callers on a database with two cores may have to.
func newLimiter(store limiter.Store, name string, p policy) (*limiter.Limiter, error) {
	bucket := limiter.TokenBucket{Capacity: p.capacity, Refill: 1, Interval: p.step}
	return limiter.New(store, name, bucket, limiter.WithTimeout(30*time.Second))
}

func take(ctx context.Context, l *limiter.Limiter, key string) error {
	res, err := l.Allow(ctx, key)
	if err == nil && !res.Allowed {
		err = fmt.Errorf("%q was refused", key)
	}
	return err
}

func ours(store limiter.Store, p policy) (decider, error) {
	l, err := newLimiter(store, p.name, p)
	if err != nil {
		return decider{}, err
	}
	return decider{allow: func(ctx context.Context, key string) (bool, error) {
		res, err := l.Allow(ctx, key)
		return res.Allowed, err
	}}, nil
}

func openPostgres(name string, opts ...postgres.Option) func(context.Context, *backends, policy) (decider, error) {
	return func(ctx context.Context, b *backends, p policy) (decider, error) {
		store, err := oursOnPostgres(ctx, b, name, opts...)
		if err != nil {
			return decider{}, err
		}
		return ours(store, p)
	}
}

// openAll decides over two limits at once: two buckets of each key.
func openAll(ctx context.Context, b *backends, p policy) (decider, error) {
	store, err := oursOnPostgres(ctx, b, "ours_all")
	if err != nil {
		return decider{}, err
	}
	var both [2]*limiter.Limiter
	for i := range both {
		if both[i], err = newLimiter(store, fmt.Sprint(p.name, i), p); err != nil {
			return decider{}, err
		}
	}
	return decider{allow: func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.AllowAll(ctx, limiter.Claim{Limiter: both[0], Key: key}, limiter.Claim{Limiter: both[1], Key: key})
		return res.Allowed, err
	}}, nil
}

func openBorrow(ctx context.Context, b *backends, p policy) (decider, error) {
	store, err := oursOnPostgres(ctx, b, "ours_borrow")
	if err != nil {
		return decider{}, err
	}
	fast, err := borrow.New(store, 1000, time.Second)
	if err != nil {
		return decider{}, err
	}
	d, err := ours(fast, p)
	d.close = func() error { return fast.Shutdown(context.Background()) }
	return d, err
}

// oursOnPostgres has tables of its own, as those of a peer would.
func oursOnPostgres(ctx context.Context, b *backends, name string, opts ...postgres.Option) (*postgres.Store, error) {
	schema, err := b.pg.migrated(ctx, name)
	if err != nil {
		return nil, err
	}
	return postgres.New(b.pg.Pool, append(opts, postgres.WithSchema(schema))...)
}

func openSQLite(ctx context.Context, b *backends, p policy) (decider, error) {
	path := b.file("ours-" + p.name + ".db")
	store, err := sqlite.Open(path)
	if err != nil {
		return decider{}, err
	}
	if err := migrations.Up(ctx, migrations.SQLite, store.DB()); err != nil {
		return decider{}, err
	}
	d, err := ours(store, p)
	d.close = store.Close
	return d, err
}

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/pg"
	"github.com/sqlimit/limiter/postgres"
)

// bench is a run of this program.
type bench struct {
	*pg.Database
	options
	began time.Time
}

// progress tells what is going on.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.0f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// The policy never refuses, however long this runs.
const (
	name     = "plenty"
	capacity = 1 << 40
	step     = time.Microsecond
)

// table is limiter_token_buckets in a schema of its own, and a store with a pool of its own: when that
// is closed, PostgreSQL's counters are complete.
type table struct {
	bench   *bench
	schema  string
	pool    *pgxpool.Pool
	store   *postgres.Store
	limiter *limiter.Limiter
}

func (b *bench) newTable(ctx context.Context, schema string, connections int) (*table, error) {
	schema, err := b.Migrated(ctx, schema)
	if err != nil {
		return nil, err
	}
	t := &table{bench: b, schema: schema}
	if err := t.connect(ctx, connections); err != nil {
		return nil, err
	}
	return t, nil
}

// connect makes the store anew, on so many connections.
func (t *table) connect(ctx context.Context, connections int) (err error) {
	if t.pool, err = t.bench.NewPool(ctx, connections); err != nil {
		return err
	}
	if t.store, err = postgres.New(t.pool, postgres.WithSchema(t.schema)); err != nil {
		return err
	}
	bucket := limiter.TokenBucket{Capacity: capacity, Refill: 1, Interval: step}
	t.limiter, err = limiter.New(t.store, name, bucket, limiter.WithTimeout(30*time.Second))
	return err
}

// drop removes the table.
func (t *table) drop(ctx context.Context) error {
	t.pool.Close()
	return t.bench.Drop(ctx, t.schema)
}

// exec runs statements in which %s is the table.
func (t *table) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := t.bench.Pool.Exec(ctx, fmt.Sprintf(s, t.schema+".limiter_token_buckets")); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// fillSQL adds rows as takes of new keys leave them. Of each %[2]d keys the first was used now. The
// others were used two hours ago, by 19 other limiters.
const fillSQL = `
INSERT INTO %%s (limiter, key, full_at, at, step, capacity, granted)
SELECT '%[3]s' || CASE mod(n, %[2]d) WHEN 0 THEN '' ELSE mod(n, 19)::text END, convert_to('client-' || n, 'UTF8'), used.at + %[4]d, used.at, %[4]d, %[5]d, 1
FROM generate_series(0, %[1]d - 1) AS n,
	(SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 AS at) AS clock,
	LATERAL (SELECT clock.at - CASE mod(n, %[2]d) WHEN 0 THEN 0 ELSE 7200000000000 END) AS used (at)
%[6]s`

// fill adds rows. One in live of them is in use, and the others have expired. If any have expired, the
// rows are in random order of their keys, and fill makes the index after the rows, which is faster.
func (t *table) fill(ctx context.Context, rows, live int) error {
	fill := func(order string) string {
		return fmt.Sprintf(fillSQL, rows, live, name, step.Nanoseconds(), int64(capacity), order)
	}
	if live == 1 {
		return t.exec(ctx, fill(""))
	}
	return t.exec(ctx, "ALTER TABLE %s DROP CONSTRAINT limiter_token_buckets_pkey", fill("ORDER BY random()"),
		"ALTER TABLE %s ADD PRIMARY KEY (limiter, key)")
}

// filledTable is newTable and fill. It leaves the table as autovacuum does after so many inserts, and
// on disk.
func (b *bench) filledTable(ctx context.Context, schema string, connections, rows, live int) (*table, error) {
	t, err := b.newTable(ctx, schema, connections)
	if err != nil {
		return nil, err
	}
	if err := t.fill(ctx, rows, live); err != nil {
		return nil, err
	}
	if err := t.exec(ctx, "VACUUM (ANALYZE) %s"); err != nil {
		return nil, err
	}
	_, err = b.Pool.Exec(ctx, "CHECKPOINT")
	return t, err
}

// keyOf returns the key of a row of fill.
func keyOf(n int) string { return "client-" + strconv.Itoa(n) }

// take takes one unit of a key, which must be granted.
func (t *table) take(ctx context.Context, key string) error {
	result, err := t.limiter.Allow(ctx, key)
	if err == nil && !result.Allowed {
		err = fmt.Errorf("%q was refused", key)
	}
	return err
}

// uniform has callers take from any of the first keys rows of fill, or of each so many-th of them.
func (t *table) uniform(keys, each int) load.Load {
	return load.Load{Ask: func(ctx context.Context, _ int) error {
		return t.take(ctx, keyOf(each*rand.IntN(keys)))
	}}
}

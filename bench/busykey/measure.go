package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/bench/internal/pg"
	"github.com/sqlimit/limiter/bench/internal/stats"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

const (
	// others is how many callers use other keys, of which there are otherKeys. Each sends a
	// request once in an interval.
	others    = 8
	otherKeys = 1000
	interval  = 10 * time.Millisecond
)

// bench is a run.
type bench struct {
	options
	dir, path string // of the SQLite file
	database  *pg.Database
	schema    string
}

func (b *bench) prepare(ctx context.Context) (err error) {
	if b.sqlite {
		if b.dir, err = os.MkdirTemp("", "limiter-busykey-"); err != nil {
			return err
		}
		b.path = filepath.Join(b.dir, "busykey.db")
		store, err := sqlite.Open(b.path)
		if err != nil {
			return err
		}
		return errors.Join(migrations.Up(ctx, migrations.SQLite, store.DB()), store.Close())
	}
	if b.database, err = pg.Open(ctx, b.postgres, "", "busykey", 1); err != nil {
		return err
	}
	b.schema, err = b.database.Migrated(ctx, fmt.Sprint(os.Getpid()))
	return err
}

func (b *bench) close() error {
	if b.database != nil {
		return b.database.Close()
	}
	return os.RemoveAll(b.dir)
}

// sample is what one round of a case measured.
type sample struct {
	p50, p99    time.Duration // of the others
	decided     float64       // calls of the busy key a second that were decided
	opened      int64         // requests of either that FailOpen let pass
	busyErrors  int64
	otherErrors int64
	connections int64
	firstError  error
}

// measure measures each operation in turns with the first one, and prints a table.
func (b *bench) measure(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "%d callers on %d keys, %d others on %d keys, each of which asks every %v. Medians of %d rounds of %v.\n\n",
		b.callers, keys, others, otherKeys, interval, b.rounds, b.length)
	fmt.Fprintln(out, "| pool | busy key | others' p50 | of it beside merged | others' p99 | busy decisions/s | passed by FailOpen | connections | errors, busy | errors, others |")
	fmt.Fprintln(out, "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, size := range b.pools {
		for i, op := range operations {
			if !b.run.MatchString(op.name) {
				continue
			}
			var samples, merged []sample
			for range b.rounds {
				m, err := b.one(ctx, size, operations[0])
				if err != nil {
					return err
				}
				s := m
				if i > 0 {
					if s, err = b.one(ctx, size, op); err != nil {
						return err
					}
				}
				merged, samples = append(merged, m), append(samples, s)
			}
			b.print(out, size, op.name, samples, merged)
		}
	}
	return nil
}

func (b *bench) print(out io.Writer, size int, name string, samples, merged []sample) {
	median := func(of func(i int) float64) float64 {
		var values []float64
		for i := range samples {
			values = append(values, of(i))
		}
		return stats.SpreadOf(values).Median
	}
	duration := func(of func(s sample) time.Duration) string {
		return stats.Duration(time.Duration(median(func(i int) float64 { return float64(of(samples[i])) })))
	}
	var opened, busyErrors, otherErrors, connections int64
	var first error
	for _, s := range samples {
		opened, busyErrors, otherErrors = opened+s.opened, busyErrors+s.busyErrors, otherErrors+s.otherErrors
		connections = max(connections, s.connections)
		if first == nil {
			first = s.firstError
		}
	}
	fmt.Fprintf(out, "| %d | %s | %s | %s | %s | %s | %d | %d | %d | %d |\n", size, name,
		duration(func(s sample) time.Duration { return s.p50 }),
		stats.TwoDigits(median(func(i int) float64 { return float64(samples[i].p50) / float64(merged[i].p50) })),
		duration(func(s sample) time.Duration { return s.p99 }),
		stats.Thousands(median(func(i int) float64 { return samples[i].decided })),
		opened, connections, busyErrors, otherErrors)
	if first != nil {
		fmt.Fprintf(os.Stderr, "%s: the first error: %v\n", name, first)
	}
}

// store returns a Store of its own for a case, and how many connections it has made.
func (b *bench) store(ctx context.Context, size int) (store limiter.Store, made func() int64, closeAll func(), err error) {
	if b.sqlite {
		s, err := sqlite.Open(b.path)
		return s, func() int64 { return 0 }, func() { _ = s.Close() }, err
	}
	config, err := pgxpool.ParseConfig(b.database.DSN)
	if err != nil {
		return nil, nil, nil, err
	}
	config.MaxConns = int32(size)
	if b.commitDelay > 0 {
		config.ConnConfig.RuntimeParams["commit_delay"] = fmt.Sprint(b.commitDelay.Microseconds())
		config.ConnConfig.RuntimeParams["commit_siblings"] = "0"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := postgres.New(pool, postgres.WithSchema(b.schema))
	return s, func() int64 { return pool.Stat().NewConnsCount() }, pool.Close, err
}

// empty removes all rows.
func (b *bench) empty(ctx context.Context) error {
	if !b.sqlite {
		_, err := b.database.Pool.Exec(ctx, "TRUNCATE "+rowtest.SQL{Schema: b.schema}.Names())
		return err
	}
	db, err := sql.Open("sqlite", b.path)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, t := range tables.All {
		if _, err := db.ExecContext(ctx, "DELETE FROM "+t.Name); err != nil {
			return err
		}
	}
	return nil
}

// one measures one round of an operation.
func (b *bench) one(ctx context.Context, size int, op operation) (s sample, err error) {
	if err := b.empty(ctx); err != nil {
		return s, err
	}
	store, made, closeAll, err := b.store(ctx, size)
	if err != nil {
		return s, err
	}
	defer closeAll()
	call, err := op.make(store)
	if err != nil {
		return s, err
	}
	other, err := limiter.New(store, "others", plenty, limiter.FailOpen())
	if err != nil {
		return s, err
	}
	for i := range otherKeys / 10 { // some rows, and connections
		if _, err := other.Allow(ctx, fmt.Sprint(i)); err != nil {
			return s, err
		}
	}
	var decided, opened, busyErrors, otherErrors atomic.Int64
	var first atomic.Pointer[error]
	count := func(res limiter.Result, err error, errs *atomic.Int64) {
		switch {
		case err != nil:
			errs.Add(1)
			first.CompareAndSwap(nil, &err)
		case res.Source == limiter.SourcePolicy:
			opened.Add(1)
		}
	}
	var counting atomic.Bool
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for range b.callers {
		all.Go(func() {
			for ctx.Err() == nil {
				res, err := call(context.WithoutCancel(ctx))
				if !counting.Load() {
					continue
				}
				count(res, err, &busyErrors)
				if err == nil && res.Source != limiter.SourcePolicy {
					decided.Add(1)
				}
			}
		})
	}
	times := make([][]time.Duration, others)
	for i := range times {
		all.Go(func() {
			tick := time.NewTicker(interval)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				began := time.Now()
				res, err := other.Allow(context.WithoutCancel(ctx), fmt.Sprint(rand.N(otherKeys)))
				if counting.Load() {
					count(res, err, &otherErrors)
					times[i] = append(times[i], time.Since(began))
				}
			}
		})
	}
	time.Sleep(b.length / 4) // until all are busy
	counting.Store(true)
	began := time.Now()
	time.Sleep(b.length)
	counting.Store(false)
	s.decided = float64(decided.Load()) / time.Since(began).Seconds()
	cancel()
	all.Wait()
	sorted := slices.Concat(times...)
	slices.Sort(sorted)
	if len(sorted) > 0 {
		s.p50, s.p99 = sorted[len(sorted)/2], sorted[len(sorted)*99/100]
	}
	s.opened, s.busyErrors, s.otherErrors, s.connections = opened.Load(), busyErrors.Load(), otherErrors.Load(), made()
	if err := first.Load(); err != nil {
		s.firstError = *err
	}
	return s, nil
}

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

const (
	// otherCallers is how many callers use other keys, of which there are otherKeys. Each sends a request
	// once in an interval.
	otherCallers = 8
	otherKeys    = 1000
	interval     = 10 * time.Millisecond
)

// busyCounts are sums over the rounds of an operation.
type busyCounts struct {
	decided     atomic.Int64 // calls of the busy key
	opened      atomic.Int64 // requests of either that FailOpen let pass
	busyErrors  atomic.Int64
	otherErrors atomic.Int64
	connections int64 // at most, in a round
}

// measureBusyKey measures what many callers of one key cost the callers of other keys. Each operation takes
// turns with the first one: takes of a plain token bucket, which merge.
func measureBusyKey(ctx context.Context, b *backends) (sections []section, err error) {
	defer catch(&err)
	s := section{
		title: "Callers of a busy key",
		about: fmt.Sprintf("%d callers on %d keys, %d others on %d keys, each of which asks every %v. Times are medians of the rounds. A pool of 0 is a SQLite file.",
			b.busyCallers, b.busyKeys, otherCallers, otherKeys, interval),
		columns: []string{"busy key", "pool", "others' p50", "of it beside merged", "others' p99", "busy decisions/s", "passed by FailOpen", "connections", "errors, busy", "errors, others"},
		text:    1,
	}
	for _, pool := range b.pools {
		for i, op := range operations {
			if !b.run.MatchString("busykey/" + op.name) {
				continue
			}
			var merged, own series // of the others
			counts, ofMerged := new(busyCounts), new(busyCounts)
			for range b.rounds {
				merged.add(b.busyRound(ctx, pool, operations[0], ofMerged), nil)
				if i > 0 {
					own.add(b.busyRound(ctx, pool, op, counts), nil)
				}
			}
			if i == 0 {
				own, counts = merged, ofMerged
			}
			middle := func(figure func(*load.Measurement) float64) string {
				return stats.Duration(time.Duration(stats.SpreadBy(own.rounds, figure).Median))
			}
			s.row(op.name, strconv.Itoa(pool), middle(median), stats.TwoDigits(own.ratio(&merged, median).Median), middle(p99),
				stats.Thousands(float64(counts.decided.Load())/b.length.Seconds()/float64(b.rounds)),
				fmt.Sprint(counts.opened.Load()), fmt.Sprint(counts.connections), fmt.Sprint(counts.busyErrors.Load()), fmt.Sprint(counts.otherErrors.Load()))
			b.progress("busykey, a pool of %d: %s", pool, op.name)
		}
	}
	if len(s.rows) == 0 {
		return nil, nil
	}
	return []section{s}, nil
}

// busyStore returns an empty Store of its own for a round, and how many connections it has made.
func (b *backends) busyStore(ctx context.Context, connections int) (store limiter.Store, made func() int64, closeAll func()) {
	if connections == 0 {
		s := try(sqlite.Open(b.file(fmt.Sprintf("busykey-%x.db", rand.Uint64()))))
		must(migrations.Up(ctx, migrations.SQLite, s.DB()))
		return s, func() int64 { return 0 }, func() { must(s.Close()) }
	}
	b.start(ctx, onPostgres)
	schema := b.pg.migrated(ctx, "busykey")
	config := try(pgxpool.ParseConfig(b.pg.dsn))
	config.MaxConns = int32(connections)
	pool := try(pgxpool.NewWithConfig(ctx, config))
	closeAll = func() {
		pool.Close()
		b.pg.drop(context.WithoutCancel(ctx), schema)
	}
	return try(postgres.New(pool, postgres.WithSchema(schema))), func() int64 { return pool.Stat().NewConnsCount() }, closeAll
}

// busyRound returns how long the others waited, and adds to the counts.
func (b *backends) busyRound(ctx context.Context, connections int, op operation, sum *busyCounts) (waited load.Measurement) {
	store, made, closeAll := b.busyStore(ctx, connections)
	defer closeAll()
	call := op.make(store, b.busyKey)
	other := try(limiter.New(store, "others", roomy, limiter.FailOpen()))
	for i := range otherKeys / 10 { // some rows, and connections
		try(other.Allow(ctx, fmt.Sprint(i)))
	}
	var counting atomic.Bool
	count := func(res limiter.Result, err error, decided, errs *atomic.Int64) {
		switch {
		case !counting.Load():
		case err != nil:
			if errs.Add(1) == 1 {
				b.progress("%s: the first error: %v", op.name, err)
			}
		case res.Source == limiter.SourcePolicy:
			sum.opened.Add(1)
		default:
			decided.Add(1)
		}
	}
	busy := load.Load{Ask: func(ctx context.Context, _ int) error {
		res, err := call(context.WithoutCancel(ctx))
		count(res, err, &sum.decided, &sum.busyErrors)
		return nil
	}}
	others := load.Load{Every: interval, Ask: func(ctx context.Context, _ int) error {
		res, err := other.Allow(context.WithoutCancel(ctx), fmt.Sprint(rand.N(otherKeys)))
		count(res, err, new(atomic.Int64), &sum.otherErrors)
		return nil
	}}
	orNone(busy.While(ctx, b.busyCallers, b.warm(), func(ctx context.Context) (err error) {
		counting.Store(true)
		waited, err = others.Run(ctx, otherCallers, 0, b.length)
		counting.Store(false)
		return err
	}))
	sum.connections = max(sum.connections, made())
	return waited
}

func (o options) busyKey() string { return fmt.Sprint("busy", rand.IntN(o.busyKeys)) }

type busyCall func(ctx context.Context) (limiter.Result, error)

// maker makes the calls of the busy key on a store. key returns the key of the next call.
type maker func(store limiter.Store, key func() string) busyCall

type operation struct {
	name string
	make maker
}

var (
	// roomy is a bucket that always has room.
	roomy = limiter.TokenBucket{Capacity: 1_000_000_000, Refill: 1_000_000, Interval: time.Second}
	// wide is a window that, as a rule, does not end while a case is measured.
	wide     = limiter.FixedWindow{Limit: 1 << 50, Window: 24 * time.Hour}
	counting = limiter.FixedWindow{Limit: 1 << 50, Window: 24 * time.Hour, CountRejected: true}
)

// operations begin with the one that the others are compared with.
var operations = []operation{
	{"Allow on a bucket (merged)", allow(roomy, 1)},
	{"AllowN, costs 1 to 7", allow(roomy, 7)},
	{"Allow, refused", allow(limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: time.Hour}, 1)},
	{"Allow on a window", allow(wide, 1)},
	{"Allow, CountRejected", allow(counting, 1)},
	{"AllowN, CountRejected, costs 1 to 7", allow(counting, 7)},
	{"Reserve", reserve(limiter.TokenBucket{Capacity: 1, Refill: 1_000_000, Interval: time.Second}, time.Hour)},
	{"Reserve, of many waits", reserve(limiter.TokenBucket{Capacity: 100, Refill: 1000, Interval: time.Second}, 0)},
	{"Reserve on a window", reserve(limiter.FixedWindow{Limit: 100, Window: time.Millisecond}, time.Hour)},
	{"Peek", kind(limiter.OpLook)},
	{"Refund", kind(limiter.OpRefund)},
	{"Cancel", kind(limiter.OpCancel)},
	{"Reset", kind(limiter.OpReset)},
	{"Allow by two policies in turn", twoPolicies},
}

func allow(policy limiter.Policy, highest int64) maker {
	return func(store limiter.Store, key func() string) busyCall {
		l := try(limiter.New(store, "busy", policy, limiter.FailOpen()))
		return func(ctx context.Context) (limiter.Result, error) { return l.AllowN(ctx, key(), 1+rand.Int64N(highest)) }
	}
}

// reserve books up to maxWait ahead; 0 is a random wait each time.
func reserve(policy limiter.Policy, maxWait time.Duration) maker {
	return func(store limiter.Store, key func() string) busyCall {
		l := try(limiter.New(store, "busy", policy, limiter.FailOpen()))
		return func(ctx context.Context) (limiter.Result, error) {
			wait := maxWait
			if wait == 0 {
				wait = rand.N(500 * time.Millisecond)
			}
			r, err := l.Reserve(ctx, key(), 1, wait)
			return r.Result, err
		}
	}
}

func kind(kind limiter.OpKind) maker {
	return func(store limiter.Store, key func() string) busyCall {
		op := limiter.Op{Kind: limiter.OpTake, Name: "busy", Key: key(), Policy: roomy, Cost: 1000, Timeout: 10 * time.Second}
		op.Booked = try(store.Do(context.Background(), op))
		op.Kind, op.Cost, op.Timeout = kind, 1, limiter.DefaultTimeout
		return func(ctx context.Context) (limiter.Result, error) {
			op := op
			op.Key = key()
			_, err := store.Do(ctx, op)
			return limiter.Result{}, err
		}
	}
}

// twoPolicies takes under one policy or the other, as two versions of a program do.
func twoPolicies(store limiter.Store, key func() string) busyCall {
	half := roomy
	half.Capacity /= 2
	calls := []busyCall{allow(roomy, 1)(store, key), allow(half, 1)(store, key)}
	return func(ctx context.Context) (limiter.Result, error) { return calls[rand.N(2)](ctx) }
}

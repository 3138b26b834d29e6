package main

import (
	"context"
	"time"
)

// policy is the limit of a contender. A contender without a bucket allows capacity requests a day.
type policy struct {
	name     string
	capacity int64
	step     time.Duration // the time of one token
}

var (
	// plenty never refuses, however long the benchmark runs.
	plenty = policy{name: "plenty", capacity: 1 << 40, step: time.Microsecond}
	// million holds a million tokens, and gets as many a second. On one key borrow would empty it.
	million = policy{name: "million", capacity: 1_000_000, step: time.Microsecond}
	// scarce lets one request pass, and then none while the benchmark runs.
	scarce = policy{name: "scarce", capacity: 1, step: 24 * time.Hour}
)

// decider is a contender under one policy, ready for many callers at once.
type decider struct {
	// allow decides on one request of cost 1.
	allow func(ctx context.Context, key string) (bool, error)
	// batch decides on a request for each key and returns how many passed. Contenders with rows have
	// it instead of allow.
	batch func(ctx context.Context, keys []string) (granted int, err error)
	// close releases what open acquired; nil if that is nothing.
	close func() error
}

type contender struct {
	name      string   // what -run matches
	title     string   // what tables and plots say
	backend   string   // where its state is
	callers   []int    // with which numbers of callers it runs; nil: with all
	scenarios []string // in which it runs; nil: in all, except for those of certain contenders only
	// rows is how many requests it sends at once. A contender with rows ignores callers: it has
	// batchers of its own, and shows the best possible rate.
	rows int
	// sample is one in how many decisions is timed: reading the clock twice takes about as long as
	// a decision in the process does.
	sample int
	open   func(ctx context.Context, b *backends, p policy) (decider, error)
}

// batchers is how many goroutines send rows: one statement is on its way while another runs.
const batchers = 2

// Where state is.
const (
	onPostgres = "PostgreSQL"
	onSQLite   = "SQLite"
	onRedis    = "Redis"
	inProcess  = "process"
)

// contenders are all, in the order of the tables.
var contenders = []contender{
	{name: "ours-postgres", title: "limiter, PostgreSQL", backend: onPostgres, sample: 1, open: openPostgres},
	{name: "ours-postgres-async", title: "limiter, PostgreSQL, async commit", backend: onPostgres, sample: 1, open: openPostgresAsync},
	{name: "ours-borrow", title: "limiter, borrow, PostgreSQL", backend: onPostgres, sample: 32, scenarios: []string{}, open: openBorrow},
	{name: "upsert-postgres", title: "UPSERT by hand, PostgreSQL", backend: onPostgres, sample: 1, open: openUpsert},
	{name: "upsert-rows", title: "UPSERT of 256 rows: ceiling", backend: onPostgres, sample: 1, rows: 256, open: openRows},
	{name: "select-postgres", title: "SELECT by hand, PostgreSQL", backend: onPostgres, sample: 1, scenarios: []string{"refused"}, open: openSelect},
	{name: "ours-all", title: "limiter, AllowAll of two, PostgreSQL", backend: onPostgres, sample: 1, scenarios: []string{"two"}, open: openAll},
	{name: "upsert-two", title: "two UPSERTs by hand in a transaction", backend: onPostgres, sample: 1, scenarios: []string{"two"}, open: openTwoUpserts},
	{name: "redis_rate", title: "redis_rate, Redis", backend: onRedis, sample: 1, open: openRedisRate},
	{name: "rueidis", title: "GCRA by hand, rueidis, Redis", backend: onRedis, sample: 1, open: openRueidis},
	{name: "throttled", title: "throttled, Redis", backend: onRedis, sample: 1, open: openThrottled},
	{name: "ulule", title: "ulule/limiter, Redis", backend: onRedis, sample: 1, open: openUlule},
	{name: "ours-sqlite", title: "limiter, SQLite", backend: onSQLite, sample: 1, open: openSQLite},
	{name: "upsert-sqlite", title: "UPSERT by hand, SQLite", backend: onSQLite, sample: 1, callers: []int{1, 64}, open: openUpsertSQLite},
	{name: "ours-memory", title: "limiter, memory", backend: inProcess, sample: 32, open: openMemory},
	{name: "go-limiter", title: "go-limiter, memory", backend: inProcess, sample: 32, open: openGoLimiter},
	{name: "throttled-memory", title: "throttled, memory", backend: inProcess, sample: 32, open: openThrottledMemory},
	{name: "httprate", title: "httprate, local counter", backend: inProcess, sample: 32, open: openHTTPRate},
	{name: "x-time-rate", title: "x/time/rate in a map", backend: inProcess, sample: 32, open: openTimeRate},
}

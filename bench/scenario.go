package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/postgres"
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

// decider is a contender under one policy, ready for many callers at once. It decides on a request of cost 1 for
// each key, and returns how many passed.
type decider func(ctx context.Context, keys []string) (granted int, err error)

// single is a decider that gets one key at a time.
func single(allow func(ctx context.Context, key string) (bool, error)) decider {
	return func(ctx context.Context, keys []string) (int, error) {
		if ok, err := allow(ctx, keys[0]); !ok || err != nil {
			return 0, err
		}
		return 1, nil
	}
}

// opener makes a decider. What it opens is closed with the backends.
type opener func(ctx context.Context, b *backends, p policy) decider

type contender struct {
	name      string   // what -run matches
	title     string   // what tables and plots say
	backend   string   // where its state is
	callers   []int    // with which numbers of callers it runs; nil: with all
	scenarios []string // in which it runs; nil: in all, except for those of certain contenders only
	// rows is how many requests it sends at once. A contender with rows ignores callers: it has
	// batchers of its own, and shows the best possible rate.
	rows int
	// sample is one in how many decisions is timed; 0 means each. Reading the clock twice takes about as long as
	// a decision in the process does.
	sample int
	open   opener
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

var contenders = []contender{
	{name: "ours-postgres", title: "limiter, PostgreSQL", backend: onPostgres, open: openPostgres("ours")},
	{name: "ours-postgres-async", title: "limiter, PostgreSQL, async commit", backend: onPostgres, open: openPostgres("ours_async", postgres.WithAsyncCommit())},
	{name: "ours-borrow", title: "limiter, borrow, PostgreSQL", backend: onPostgres, sample: 32, scenarios: []string{}, open: openBorrow},
	{name: "ours-stores", title: "limiter, a store for each connection", backend: onPostgres, scenarios: []string{"hot"}, open: openStores},
	{name: "upsert-postgres", title: "UPSERT by hand, PostgreSQL", backend: onPostgres, open: openUpserts(1)},
	{name: "upsert-rows", title: "UPSERT of 256 rows: ceiling", backend: onPostgres, rows: 256, open: openRows},
	{name: "select-postgres", title: "SELECT by hand, PostgreSQL", backend: onPostgres, scenarios: []string{"refused"}, open: openSelect},
	{name: "ours-all", title: "limiter, AllowAll of two, PostgreSQL", backend: onPostgres, scenarios: []string{"two"}, open: openAll},
	{name: "upsert-two", title: "two UPSERTs by hand in a transaction", backend: onPostgres, scenarios: []string{"two"}, open: openUpserts(2)},
	{name: "redis_rate", title: "redis_rate, Redis", backend: onRedis, open: openRedisRate},
	{name: "rueidis", title: "GCRA by hand, rueidis, Redis", backend: onRedis, open: openRueidis},
	{name: "throttled", title: "throttled, Redis", backend: onRedis, open: openThrottled},
	{name: "ulule", title: "ulule/limiter, Redis", backend: onRedis, open: openUlule},
	{name: "ours-sqlite", title: "limiter, SQLite", backend: onSQLite, open: openSQLite},
	{name: "upsert-sqlite", title: "UPSERT by hand, SQLite", backend: onSQLite, callers: []int{1, 64}, open: openUpsertSQLite},
	{name: "ours-memory", title: "limiter, memory", backend: inProcess, sample: 32, open: openMemory},
	{name: "go-limiter", title: "go-limiter, memory", backend: inProcess, sample: 32, open: openGoLimiter},
	{name: "throttled-memory", title: "throttled, memory", backend: inProcess, sample: 32, open: openThrottledMemory},
	{name: "httprate", title: "httprate, local counter", backend: inProcess, sample: 32, open: openHTTPRate},
	{name: "x-time-rate", title: "x/time/rate in a map", backend: inProcess, sample: 32, open: openTimeRate},
}

type scenario struct {
	name    string
	about   string
	callers []int
	keys    int      // number of keys
	zipf    bool     // a few keys get most of the requests
	only    []string // the contenders that run in it; nil: all that do not name other scenarios
	policy  policy
}

var scenarios = []scenario{
	{name: "lone", about: "one caller, 10,000 keys", callers: []int{1}, keys: 10_000, policy: plenty},
	{name: "many", about: "10,000 keys, all equally likely", callers: []int{64, 256, 1024}, keys: 10_000, policy: plenty},
	{name: "hot", about: "one key", callers: []int{64, 256, 1024}, keys: 1, policy: plenty},
	{name: "refused", about: "1,000 keys with nothing left, so every request is refused", callers: []int{1, 64, 256, 1024}, keys: 1000, policy: scarce},
	{name: "zipf", about: "10,000 keys; one request in seven is for the first key (Zipf, s = 1.1)", callers: []int{64, 256, 1024}, keys: 10_000, zipf: true, policy: plenty},
	{name: "two", about: "two limits for each of 10,000 keys, both or none", callers: []int{1, 64, 256}, keys: 10_000, only: []string{"ours-all", "upsert-two"}, policy: plenty},
	{name: "borrow-hot", about: "one key, 1,000,000 tokens a second", callers: []int{64, 256}, keys: 1, only: borrowing, policy: plenty},
	{name: "borrow-100", about: "100 keys, 1,000,000 tokens a second each", callers: []int{64, 256}, keys: 100, only: borrowing, policy: million},
	{name: "borrow-zipf", about: "100,000 keys, 1,000,000 tokens a second each; one request in seven is for the first key (Zipf, s = 1.1)", callers: []int{256}, keys: 100_000, zipf: true, only: borrowing, policy: million},
	{name: "borrow-many", about: "10,000 keys, 1,000,000 tokens a second each, all equally likely", callers: []int{256}, keys: 10_000, only: borrowing, policy: million},
}

// borrowing are the contenders that are compared with package borrow.
var borrowing = []string{"ours-postgres", "ours-borrow", "redis_rate", "rueidis"}

// wants returns the decision that every request of the scenario must get.
func (s scenario) wants() bool { return s.policy.name != scarce.name }

func (s scenario) has(c contender) bool {
	if s.only != nil {
		return slices.Contains(s.only, c.name)
	}
	return c.scenarios == nil || slices.Contains(c.scenarios, s.name)
}

// keyNames returns the keys. No other run of this program uses them.
func (s scenario) keyNames(prefix string) []string {
	names := make([]string, s.keys)
	for i := range names {
		names[i] = fmt.Sprintf("%s%s:%s:client-%d", prefix, s.policy.name, s.name, i)
	}
	return names
}

func order(names []string, zipf bool) []string {
	var order []string
	for _, n := range load.Order(len(names), zipf) {
		order = append(order, names[n])
	}
	return order
}

// testCase is a contender in a scenario with a number of callers, and what it gave.
type testCase struct {
	scenario  scenario
	callers   int
	contender contender
	*series
}

// group is what is compared with each other: the cases with one scenario and number of callers, which
// are measured one directly after another.
type group struct {
	scenario scenario
	callers  int
	cases    []testCase
}

// plan returns the groups that the options choose, in the order of the tables. A contender with rows comes
// once a scenario, after the others of its first group.
func (o options) plan() (groups []group) {
	for _, sc := range scenarios {
		rowsDone := sc.name == "lone" || sc.only != nil // nothing to put together
		for _, callers := range sc.callers {
			if len(o.callers) > 0 && !slices.Contains(o.callers, callers) {
				continue
			}
			g := group{scenario: sc, callers: callers}
			for _, c := range contenders {
				switch {
				case !o.run.MatchString(sc.name+"/"+c.name) || !sc.has(c) || c.rows > 0 && rowsDone:
				case c.rows > 0:
					g.cases = append(g.cases, testCase{sc, batchers, c, &series{}})
				case c.callers == nil || slices.Contains(c.callers, callers):
					g.cases = append(g.cases, testCase{sc, callers, c, &series{}})
				}
			}
			rowsDone = true
			if len(g.cases) > 0 {
				groups = append(groups, g)
			}
		}
	}
	return groups
}

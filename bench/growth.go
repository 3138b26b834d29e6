package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/postgres"
)

// growthParts are questions about the tables of limiter in PostgreSQL as they grow. Each figure has a
// target, and the report says which targets are missed.
var growthParts = []struct {
	name    string
	measure func(context.Context, *backends) section
}{
	{"latency", measureLatency}, // of a decision in a small and in a large table
	{"hot", measureHOT},         // the share of updates that are HOT
	{"size", measureSize},       // of a table after many takes
	{"sweep", measureSweep},     // its speed, and the latency beside it
	{"plan", measurePlan},       // the latency by plans that were made when the table was tiny
}

func measureGrowth(ctx context.Context, b *backends) (sections []section, err error) {
	defer catch(&err)
	for _, p := range growthParts {
		if b.run.MatchString("growth/" + p.name) {
			b.start(ctx, onPostgres)
			b.progress("growth/%s", p.name)
			sections = append(sections, p.measure(ctx, b))
		}
	}
	return sections, nil
}

// bucketTable is limiter_token_buckets in a schema of its own, and a store with a pool of its own: when that
// is closed, PostgreSQL's counters are complete.
type bucketTable struct {
	*backends
	schema  string
	pool    *pgxpool.Pool
	store   *postgres.Store
	limiter *limiter.Limiter
}

func (b *backends) newTable(ctx context.Context, schema string, connections int) *bucketTable {
	t := &bucketTable{backends: b, schema: b.pg.migrated(ctx, schema)}
	t.connect(ctx, connections)
	return t
}

// connect makes the store anew, on so many connections.
func (t *bucketTable) connect(ctx context.Context, connections int) {
	t.pool = newPool(ctx, t.pg.dsn, connections)
	t.store = try(postgres.New(t.pool, postgres.WithSchema(t.schema)))
	t.limiter = newLimiter(t.store, plenty.name, plenty)
}

func (t *bucketTable) drop(ctx context.Context) {
	t.pool.Close()
	t.pg.drop(ctx, t.schema)
}

func (t *bucketTable) exec(ctx context.Context, statements ...string) {
	for _, s := range statements {
		t.pg.exec(ctx, fmt.Sprintf(s, t.schema+".limiter_token_buckets"))
	}
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
func (t *bucketTable) fill(ctx context.Context, rows, live int) {
	fill := func(order string) string {
		return fmt.Sprintf(fillSQL, rows, live, plenty.name, plenty.step.Nanoseconds(), plenty.capacity, order)
	}
	if live == 1 {
		t.exec(ctx, fill(""))
		return
	}
	t.exec(ctx, "ALTER TABLE %s DROP CONSTRAINT limiter_token_buckets_pkey", fill("ORDER BY random()"),
		"ALTER TABLE %s ADD PRIMARY KEY (limiter, key)")
}

// filledTable is newTable and fill. It leaves the table as autovacuum does after so many inserts, and
// on disk.
func (b *backends) filledTable(ctx context.Context, schema string, connections, rows, live int) *bucketTable {
	t := b.newTable(ctx, schema, connections)
	t.fill(ctx, rows, live)
	t.exec(ctx, "VACUUM (ANALYZE) %s")
	b.pg.exec(ctx, "CHECKPOINT")
	return t
}

func keyOf(n int) string { return "client-" + strconv.Itoa(n) }

func (t *bucketTable) take(ctx context.Context, key string) error { return take(ctx, t.limiter, key) }

// uniform has callers take from any of the first keys rows of fill, or of each so many-th of them.
func (t *bucketTable) uniform(keys, each int) load.Load {
	return load.Load{Ask: func(ctx context.Context, _ int) error { return t.take(ctx, keyOf(each*rand.IntN(keys))) }}
}

// zipf has callers take from all of the keys, most often from the first ones.
func (t *bucketTable) zipf(keys int) load.Load {
	order := load.Order(keys, true)
	return load.Load{Ask: func(ctx context.Context, turn int) error { return t.take(ctx, keyOf(order[turn%len(order)])) }}
}

// counters are what PostgreSQL counted of a table, and its size.
type counters struct {
	updates, hot, dead, vacuums int64
	table, primaryKey           int64 // bytes
}

// hotShare returns how many of the updates since earlier were HOT, with the digits that tell it from all.
func (c counters) hotShare(earlier counters) string {
	if c.updates == earlier.updates {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(c.hot-earlier.hot)/float64(c.updates-earlier.updates))
}

// counters closes the table's pool, for a session reports its last counts when it ends, and makes
// another.
func (t *bucketTable) counters(ctx context.Context) (c counters) {
	connections := int(t.pool.Config().MaxConns)
	var sessions []int32
	for _, conn := range t.pool.AcquireAllIdle(ctx) {
		sessions = append(sessions, int32(conn.Conn().PgConn().PID()))
		conn.Release()
	}
	t.pool.Close()
	ending, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for left := -1; left != 0; time.Sleep(10 * time.Millisecond) {
		must(t.pg.QueryRow(ending, "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1)", sessions).Scan(&left))
	}
	must(t.pg.QueryRow(ctx, `
		SELECT n_tup_upd, n_tup_hot_upd, n_dead_tup, autovacuum_count, pg_relation_size(relid), pg_indexes_size(relid)
		FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'limiter_token_buckets'`, t.schema).
		Scan(&c.updates, &c.hot, &c.dead, &c.vacuums, &c.table, &c.primaryKey))
	t.connect(ctx, connections)
	return c
}

// wal returns how many bytes of WAL the server writes while do runs.
func (d *database) wal(ctx context.Context, do func()) int64 {
	position := func() (at int64) {
		must(d.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&at))
		return at
	}
	before := position()
	do()
	return position() - before
}

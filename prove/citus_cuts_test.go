package prove_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// citusWorker is a worker whose connections from the coordinator go through a proxy.
type citusWorker struct {
	id, group, port int
	proxy           *cutproxy.Proxy
}

// proxyWorkers makes the coordinator reach its workers through proxies until the test ends.
func proxyWorkers(t *testing.T, db *pgx.Conn) (list []citusWorker) {
	rows, err := db.Query(t.Context(), "SELECT nodeid, groupid, nodeport FROM pg_dist_node WHERE shouldhaveshards ORDER BY nodeid")
	must(t, err)
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w citusWorker, err error) {
		return w, row.Scan(&w.id, &w.group, &w.port)
	})
	if err != nil || len(list) < 2 {
		t.Fatalf("%d workers (%v), want two at least", len(list), err)
	}
	lead := func(ctx context.Context, w citusWorker, port int) {
		if _, err := db.Exec(ctx, "SELECT citus_update_node($1, '127.0.0.1', $2)", w.id, port); err != nil {
			t.Errorf("the coordinator does not use port %d: %v", port, err)
		}
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, w := range list {
			lead(ctx, w, w.port)
		}
		if _, err := db.Exec(ctx, "SELECT start_metadata_sync_to_all_nodes()"); err != nil {
			t.Errorf("the workers' metadata: %v", err)
		}
	})
	for i := range list {
		w := &list[i]
		w.proxy = cutproxy.New(t, w.port)
		lead(t.Context(), *w, w.proxy.Port())
	}
	return list
}

// citusTables makes distributed tables in a schema that goes when the test ends.
func citusTables(t *testing.T, dsn string) (schema string) {
	schema = "limiter_cuts_" + strings.ToLower(rand.Text())
	db, err := sql.Open("pgx", dsn)
	must(t, err)
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
		_ = db.Close()
	})
	execute(t, dsn, "CREATE SCHEMA "+schema)
	must(t, migrations.Up(t.Context(), migrations.Postgres, db, migrations.WithSchema(schema)))
	for _, table := range tables.All {
		execute(t, dsn, "SELECT create_distributed_table('"+schema+"."+table.Name+"', 'key', shard_count := 8)")
	}
	return schema
}

// citusCall is an operation whose connections between coordinator and worker are cut.
type citusCall struct {
	name string
	keys int   // that it charges
	unit int64 // what it adds to each
	act  func(ctx context.Context, c *citusCut, keys []string) (carried bool, err error)
}

func citusCalls() []citusCall {
	all := func(ctx context.Context, c *citusCut, keys []string) (bool, error) {
		var claims []limiter.Claim
		for _, key := range keys {
			claims = append(claims, limiter.Claim{Limiter: c.l, Key: key})
		}
		r, err := limiter.AllowAll(ctx, claims...)
		return r.Allowed, err
	}
	return []citusCall{
		{"Allow", 1, 1, func(ctx context.Context, c *citusCut, keys []string) (bool, error) {
			r, err := c.l.Allow(ctx, keys[0])
			return r.Allowed, err
		}},
		{"Reserve", 1, 1, func(ctx context.Context, c *citusCut, keys []string) (bool, error) {
			r, err := c.l.Reserve(ctx, keys[0], 1, time.Hour)
			return r.Allowed, err
		}},
		{"Charge", 1, 1, func(ctx context.Context, c *citusCut, keys []string) (bool, error) {
			_, err := c.l.Charge(ctx, keys[0], 1)
			return true, err
		}},
		{"Refund", 1, -1, func(ctx context.Context, c *citusCut, keys []string) (bool, error) {
			return c.l.Refund(ctx, keys[0], 1)
		}},
		{"Reset", 1, -citusSpent, func(ctx context.Context, c *citusCut, keys []string) (bool, error) {
			return true, c.l.Reset(ctx, keys[0])
		}},
		{"AllowAll of one limit", 1, 1, all},
		{"AllowAll of four limits", 4, 1, all},
	}
}

var leaseCalls = []citusCall{
	{"TryAcquire", 1, 1, func(ctx context.Context, c *citusCut, keys []string) (bool, error) {
		lease, err := c.leases.TryAcquire(ctx, keys[0])
		return lease.Allowed, err
	}},
	{"Release", 1, -1, func(ctx context.Context, c *citusCut, _ []string) (bool, error) {
		return true, c.lease.Release(ctx)
	}},
}

const (
	citusLimit = 1000
	citusSpent = 2 // of each key, before the cut
)

// onCitusWorkers returns a limiter on a cluster whose workers the coordinator reaches through proxies.
func onCitusWorkers(t *testing.T) (c citusCut, workers []citusWorker) {
	dsn := os.Getenv("LIMITER_TEST_CITUS_DSN")
	if dsn == "" {
		t.Skip("LIMITER_TEST_CITUS_DSN is not set: it names the coordinator of a Citus cluster")
	}
	db := connection(t, dsn)
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
	schema := citusTables(t, dsn)
	workers = proxyWorkers(t, db)
	store := openStore(t, dsn, postgres.WithSchema(schema), postgres.WithCitus())
	c = citusCut{db: db, store: store, schema: schema}
	c.limit(t, limiter.TokenBucket{Capacity: citusLimit, Refill: 1, Interval: 240 * time.Hour})
	return c, workers
}

// Nine of ten calls are for a worker that refuses connections. Only the first is an UPSERT of unknown outcome.
func TestCitusDeadWorker(t *testing.T) {
	c, workers := onCitusWorkers(t)
	workers[0].proxy.Refuse(true)
	workers[0].proxy.Break()
	for i := range 100 {
		c.name = fmt.Sprint(i)
		w, want := workers[0], limiter.ErrNotApplied
		if i == 0 {
			want = limiter.ErrOutcomeUnknown
		} else if i%10 == 9 {
			w, want = workers[1], nil
		}
		if _, err := c.l.Allow(t.Context(), c.key(t, w)); !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
	}
}

// The connections between a coordinator and its workers are cut, not those of the store.
func TestCitusCuts(t *testing.T) {
	c, workers := onCitusWorkers(t)
	stride := int64(1)
	if proof.Tier == campaign.CI {
		stride = 23
	}
	run := func(t *testing.T, calls []citusCall) {
		for _, call := range calls {
			t.Run(call.name, func(t *testing.T) {
				classes := map[string]int{}
				for n, w := range workers {
					for _, direction := range []cutproxy.Direction{cutproxy.Request, cutproxy.Response} {
						for after, reached := int64(0), true; reached; after += stride {
							c.call, c.name = call, fmt.Sprint(call.name, n, direction, after)
							reached = c.try(t, w, cutproxy.Cut{Direction: direction, After: after, Reset: after%2 > 0}, classes)
						}
					}
				}
				t.Log(classes)
			})
		}
	}
	run(t, citusCalls())
	t.Run("sliding window", func(t *testing.T) {
		c.limit(t, limiter.SlidingWindow{Limit: citusLimit, Window: 262_980 * time.Hour})
		run(t, citusCalls())
	})
	t.Run("leases", func(t *testing.T) {
		var err error
		c.leases, err = limiter.NewConcurrency(c.store, "cut", limiter.InFlight{Limit: citusLimit, Hold: time.Hour}, limiter.WithTimeout(30*time.Second))
		must(t, err)
		run(t, leaseCalls)
	})
}

// citusCut is one trial, on keys of its own.
type citusCut struct {
	db           *pgx.Conn
	store        *postgres.Store
	l            *limiter.Limiter
	leases       *limiter.Concurrency // instead of l, if it is not nil
	lease        *limiter.Lease       // the latest
	call         citusCall
	schema, name string
}

// limit makes the limiter of the trials that follow.
func (c *citusCut) limit(t *testing.T, policy limiter.Policy) {
	t.Helper()
	var err error
	c.l, err = limiter.New(c.store, "cut", policy, limiter.WithTimeout(30*time.Second))
	must(t, err)
}

// spend takes citusSpent units from a key.
func (c *citusCut) spend(ctx context.Context, key string) (err error) {
	if c.leases == nil {
		_, err = c.l.AllowN(ctx, key, citusSpent)
		return err
	}
	for range citusSpent {
		if c.lease, err = c.leases.TryAcquire(ctx, key); err != nil {
			return errors.Join(err, c.leases.Reset(ctx, key))
		}
	}
	return nil
}

func (c *citusCut) peek(ctx context.Context, key string) (limiter.Result, error) {
	if c.leases == nil {
		return c.l.Peek(ctx, key)
	}
	return c.leases.Peek(ctx, key)
}

func (c *citusCut) key(t *testing.T, w citusWorker) string {
	t.Helper()
	for i := 0; ; i++ {
		key, group := fmt.Sprint(c.name, "-", i), 0
		err := c.db.QueryRow(t.Context(), `SELECT groupid FROM pg_dist_placement
			WHERE shardid = get_shard_id_for_distribution_column($1::regclass, $2::bytea)`,
			c.schema+".limiter_token_buckets", []byte(key)).Scan(&group)
		must(t, err)
		if group == w.group {
			return key
		}
	}
}

// try reports whether the operation used so many bytes of a connection to the worker.
func (c *citusCut) try(t *testing.T, w citusWorker, cut cutproxy.Cut, classes map[string]int) (reached bool) {
	ctx := t.Context()
	keys := make([]string, c.call.keys)
	for i := range keys {
		if keys[i] = c.key(t, w); i > 0 { // on any worker
			keys[i] = fmt.Sprint(c.name, "+", i)
		}
		for {
			err := c.spend(ctx, keys[i])
			if err == nil {
				break
			}
			if !errors.Is(err, limiter.ErrNotApplied) {
				t.Fatalf("without a cut: %v", err)
			}
		}
	}
	trap := w.proxy.Arm(cut)
	carried, err := c.call.act(ctx, c, keys)
	reached = trap.Disarm()
	// A transaction whose second COMMIT was lost stays prepared until the coordinator recovers it.
	must(t, testenv.ErrorOf(c.db.Exec(ctx, "SELECT recover_prepared_transactions()")))
	charged := 0
	for _, key := range keys {
		res, err := c.peek(ctx, key)
		must(t, err)
		switch citusLimit - res.Remaining {
		case citusSpent:
		case citusSpent + c.call.unit:
			charged++
		default:
			t.Errorf("%s: %d of %d are left", key, res.Remaining, citusLimit)
		}
	}
	class := outcome.Of(carried, err)
	if !slices.Contains([]string{outcome.Carried, outcome.Refused, outcome.NotApplied, outcome.Unknown}, class) {
		t.Errorf("%s: %v", c.name, err)
	}
	classes[class]++
	if charged != 0 && charged != len(keys) || class == outcome.Carried && charged == 0 ||
		class != outcome.Carried && class != outcome.Unknown && charged > 0 {
		t.Errorf("%s, RST %t: %s, and %d of %d keys were charged: %v", c.name, cut.Reset, class, charged, len(keys), err)
	}
	return reached
}

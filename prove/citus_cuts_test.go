package prove_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
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
	"github.com/sqlimit/limiter/prove/internal/cuts"
)

// citusWorker is a worker whose connections from the coordinator go through a proxy.
type citusWorker struct {
	id, group, port int
	proxy           *cutproxy.Proxy
	has             func(key string) bool
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
		err := testenv.ErrorOf(db.Exec(ctx, "SELECT citus_update_node($1, '127.0.0.1', $2)", w.id, port))
		testenv.Equal(t, err, nil, "the coordinator does not use port", port)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, w := range list {
			lead(ctx, w, w.port)
		}
		testenv.Equal(t, testenv.ErrorOf(db.Exec(ctx, "SELECT start_metadata_sync_to_all_nodes()")), nil, "the workers' metadata")
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
		testenv.Equal(t, testenv.ErrorOf(db.ExecContext(context.WithoutCancel(t.Context()), "DROP SCHEMA "+schema+" CASCADE")), nil, "drop", schema)
		_ = db.Close()
	})
	execute(t, dsn, "CREATE SCHEMA "+schema)
	must(t, migrations.Up(t.Context(), migrations.Postgres, db, migrations.WithSchema(schema)))
	for _, table := range tables.All {
		execute(t, dsn, "SELECT create_distributed_table('"+schema+"."+table.Name+"', 'key', shard_count := 8)")
	}
	return schema
}

// onCitusWorkers returns the schema of tables on a cluster, and the workers, which the coordinator reaches through proxies.
func onCitusWorkers(t *testing.T) (dsn, schema string, workers []citusWorker) {
	dsn = os.Getenv("LIMITER_TEST_CITUS_DSN")
	if dsn == "" {
		t.Skip("LIMITER_TEST_CITUS_DSN is not set: it names the coordinator of a Citus cluster")
	}
	db := connection(t, dsn)
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
	schema = citusTables(t, dsn)
	workers = proxyWorkers(t, db)
	for i := range workers {
		workers[i].has = func(key string) bool {
			var group int
			must(t, db.QueryRow(t.Context(), `SELECT groupid FROM pg_dist_placement
				WHERE shardid = get_shard_id_for_distribution_column($1::regclass, $2::bytea)`,
				schema+".limiter_token_buckets", []byte(key)).Scan(&group))
			return group == workers[i].group
		}
	}
	return dsn, schema, workers
}

// Nine of ten calls are for a worker that refuses connections. Only the first is an UPSERT of unknown outcome.
func TestCitusDeadWorker(t *testing.T) {
	dsn, schema, workers := onCitusWorkers(t)
	store := openStore(t, dsn, postgres.WithSchema(schema), postgres.WithCitus())
	l, err := limiter.New(store, "cut", limiter.PerHour(1000), limiter.WithTimeout(30*time.Second))
	must(t, err)
	workers[0].proxy.Refuse(true)
	workers[0].proxy.Break()
	for i, n := 0, 0; i < 100; n++ {
		w, want := workers[0], limiter.ErrNotApplied
		if i == 0 {
			want = limiter.ErrOutcomeUnknown
		} else if i%10 == 9 {
			w, want = workers[1], nil
		}
		if key := fmt.Sprint(n); w.has(key) {
			testenv.ErrorIs(t, testenv.ErrorOf(l.Allow(t.Context(), key)), want, "call", i)
			i++
		}
	}
}

// The connections between a coordinator and its workers are cut, not those of the store.
func TestCitusCuts(t *testing.T) {
	dsn, schema, workers := onCitusWorkers(t)
	stride := int64(1)
	if proof.Tier == campaign.CI {
		stride = 23
	}
	for _, kind := range cuts.CitusKinds() {
		t.Run(kind.Name, func(t *testing.T) {
			classes := map[string]int64{}
			for _, w := range workers {
				client, err := cuts.NewCitusClient(t, dsn, schema, kind, w.proxy, w.has)
				must(t, err)
				for _, direction := range []cutproxy.Direction{cutproxy.Request, cutproxy.Response} {
					for after, reached := int64(0), true; reached; after += stride {
						var found cuts.Finding
						cut := cutproxy.Cut{Direction: direction, After: after, Reset: after%2 > 0}
						if reached, found, err = client.CutWorker(cut); err != nil {
							t.Errorf("%+v: %v", cut, err)
						}
						for class, n := range found.Classes {
							classes[class] += n
						}
					}
				}
			}
			t.Log(classes)
		})
	}
}

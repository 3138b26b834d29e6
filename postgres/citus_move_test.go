package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter/postgres"
)

// moveShard moves the shard of a key, with those of the other table, to another worker.
func (d *database) moveShard(t *testing.T, schema, key, mode string) {
	t.Helper()
	const move = `SELECT citus_move_shard_placement(p.shardid, p.nodename, p.nodeport, w.node_name, w.node_port::int, '%[3]s')
		FROM citus_shards AS p
		JOIN (SELECT * FROM citus_get_active_worker_nodes() ORDER BY node_port) AS w ON w.node_port <> p.nodeport
		WHERE p.shardid = get_shard_id_for_distribution_column('%[1]s.limiter_token_buckets', '%[2]s'::bytea)
		LIMIT 1`
	d.exec(t, fmt.Sprintf(move, schema, key, mode))
}

// The hot key and 15 others are taken from while their shards move between the workers.
func TestCitusTakesAreGrantedExactlyWhileShardsMove(t *testing.T) {
	onCitus(t, func(t *testing.T, d *database) {
		for _, mode := range []string{"force_logical", "block_writes"} {
			const limit = 100_000 // more than is asked for
			schema := d.schema(t)
			stores := [2]*postgres.Store{d.store(t, schema, few(16), postgres.WithCitus()), d.store(t, schema, few(16), postgres.WithCitus())}
			ctx, stop := context.WithCancel(t.Context())
			var moved, asked, failed, longest atomic.Int64
			var mover sync.WaitGroup
			granted := make([]atomic.Int64, 16)
			mover.Go(func() {
				defer stop()
				for i := range 4 {
					d.moveShard(t, schema, fmt.Sprint("key-", i), mode)
					moved.Add(1)
				}
			})
			each(workers, func(worker int) {
				l := newLimiter(t, stores[worker%2], slow(limit))
				for i := worker; ctx.Err() == nil; i++ {
					began := time.Now()
					r, err := l.Allow(t.Context(), fmt.Sprint("key-", i%len(granted)))
					longest.Store(max(longest.Load(), int64(time.Since(began))))
					asked.Add(1)
					if err != nil {
						if failed.Add(1) < 5 {
							t.Errorf("%s: %v", mode, err)
						}
					} else if r.Allowed {
						granted[i%len(granted)].Add(1)
					}
				}
			})
			mover.Wait()
			l := newLimiter(t, stores[0], slow(limit))
			for i := range granted {
				r, err := l.Peek(t.Context(), fmt.Sprint("key-", i))
				if err != nil || limit-r.Remaining != granted[i].Load() {
					t.Errorf("%s: key %d: %d were granted, the row has %d (%v)", mode, i, granted[i].Load(), limit-r.Remaining, err)
				}
			}
			t.Logf("%s: %d moves, %d takes, %d failed, the longest took %v", mode, moved.Load(), asked.Load(), failed.Load(), time.Duration(longest.Load()).Round(time.Millisecond))
		}
	})
}

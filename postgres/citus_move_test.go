package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
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

// movedKeys is how many keys each policy has whose shards may move.
const movedKeys = 16

// moved is one policy's limiter in each of two stores, and what its keys were charged.
type moved struct {
	limiters [2]*limiter.Limiter
	limit    int64
	prefix   string // of its keys
	charged  [movedKeys]atomic.Int64
}

func newMoved(t *testing.T, stores [2]*postgres.Store, limit int64, policy limiter.Policy, prefix string) *moved {
	t.Helper()
	return &moved{limit: limit, prefix: prefix, limiters: [2]*limiter.Limiter{newLimiter(t, stores[0], policy), newLimiter(t, stores[1], policy)}}
}

func (m *moved) key(i int) string { return fmt.Sprint(m.prefix, i%movedKeys) }

// charge carries out an operation of a kind. The first three never exceed the limit.
func (m *moved) charge(ctx context.Context, kind, store, i int) error {
	l, key := m.limiters[store], m.key(i)
	var r limiter.Result
	var back bool
	var err error
	switch kind {
	case 0:
		r, err = l.AllowUpTo(ctx, key, 3)
	case 1:
		if r, err = l.AllowN(ctx, key, 2); err == nil && r.Allowed {
			back, err = l.RefundOf(ctx, key, 1, r)
		}
	case 2:
		r, err = l.Allow(ctx, key)
	case 3:
		r, err = l.Charge(ctx, key, 2)
	default:
		var reserved *limiter.Reservation
		if reserved, err = l.Reserve(ctx, key, 1, time.Minute); err == nil {
			r = reserved.Result
		}
	}
	if err == nil {
		m.charged[i%movedKeys].Add(r.Taken - map[bool]int64{true: 1}[back])
	}
	return err
}

// takeAll takes from each limit at once. Their keys are on different shards.
func takeAll(ctx context.Context, limits []*moved, store, key int) error {
	var claims []limiter.Claim
	for i, m := range limits {
		claims = append(claims, limiter.Claim{Limiter: m.limiters[store], Key: m.key(key + i)})
	}
	r, err := limiter.AllowAll(ctx, claims...)
	if err == nil && r.Allowed {
		for i, m := range limits {
			m.charged[(key+i)%movedKeys].Add(1)
		}
	}
	return err
}

// A transaction locks a row, another session waits for the row, and a move of the shard waits for that
// session. The transaction must still be able to write the row.
func TestCitusMoveBesideALock(t *testing.T) {
	onCitus(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil, postgres.WithCitus())
		do(t, store, take(slow(2), "k", 1))
		texts := postgres.CitusStatements(schema)
		tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
		change := func(text string, args ...any) {
			t.Helper()
			if _, err := tx.Exec(bounded(t), text, args...); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
		// The lock of a shard's group on the coordinator, which writes share and a move has alone.
		locks := func(granted bool) int {
			return query[int](t, d, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 8 AND granted = $1", granted)
		}
		change("SET LOCAL lock_timeout = '5s'")
		change(texts["bucketLock"], "test", []byte("k"))
		held := locks(true)
		var others sync.WaitGroup
		others.Go(func() { do(t, store, take(slow(2), "k", 1)) })
		waitFor(t, "a take waits for the row", func() bool { return locks(true) > held })
		others.Go(func() { d.moveShard(t, schema, "k", "block_writes") })
		waitFor(t, "a move waits for the take", func() bool { return locks(false) > 0 })
		change(texts["bucketReset"], "test", []byte("k"))
		end(t, tx, false)
		others.Wait()
	})
}

// All operations charge keys while the shards of the keys move between the workers.
func TestCitusMove(t *testing.T) {
	onCitus(t, func(t *testing.T, d *database) {
		for _, mode := range []string{"force_logical", "block_writes"} {
			t.Run(mode, func(t *testing.T) { chargeWhileShardsMove(t, d, mode) })
		}
	})
}

func chargeWhileShardsMove(t *testing.T, d *database, mode string) {
	t.Helper()
	schema := d.schema(t)
	stores := [2]*postgres.Store{d.store(t, schema, few(16), postgres.WithCitus()), d.store(t, schema, few(16), postgres.WithCitus())}
	const small, large = 200, 100_000 // less and more than is asked for
	day, _ := midnightIn(small, time.Now(), 12*time.Hour)
	limits := []*moved{
		newMoved(t, stores, small, slow(small), "key-"), newMoved(t, stores, small, long(small), "key-"),
		newMoved(t, stores, small, day, "day-"), newMoved(t, stores, small, rowtest.Lasting["sliding"](small), "key-"),
	}
	owed := newMoved(t, stores, large, slow(large), "owed-")
	ctx, stop := context.WithCancel(t.Context())
	var asked, longest atomic.Int64
	var mover sync.WaitGroup
	mover.Go(func() {
		defer stop()
		for i := range 4 {
			d.moveShard(t, schema, fmt.Sprint("key-", i), mode)
		}
	})
	each(workers, func(worker int) {
		for i := worker; ctx.Err() == nil; i++ {
			began, kind, store := time.Now(), i/movedKeys%8, worker%2
			var err error
			switch {
			case kind < 3:
				err = limits[worker/2%len(limits)].charge(t.Context(), kind, store, i)
			case kind == 3:
				err = owed.charge(t.Context(), 3+worker/2%2, store, i)
			default:
				err = takeAll(t.Context(), limits, store, i)
			}
			longest.Store(max(longest.Load(), int64(time.Since(began))))
			asked.Add(1)
			if err != nil {
				t.Error(err)
			}
		}
	})
	mover.Wait()
	for n, m := range append(limits, owed) {
		for i := range m.charged {
			r, err := m.limiters[0].Peek(t.Context(), m.key(i))
			if want := m.charged[i].Load(); err != nil || m.limit-r.Remaining != want {
				t.Errorf("limit %d, %s: charged %d of %d, the row has %d (%v)", n, m.key(i), want, m.limit, m.limit-r.Remaining, err)
			}
		}
	}
	t.Logf("%d operations, the longest took %v", asked.Load(), time.Duration(longest.Load()).Round(time.Millisecond))
}

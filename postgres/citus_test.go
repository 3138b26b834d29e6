package postgres_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/storetest"
)

// onCitus runs a test on the cluster whose coordinator LIMITER_TEST_CITUS_DSN names, as a superuser.
func onCitus(t *testing.T, run func(t *testing.T, d *database)) {
	t.Helper()
	dsn := os.Getenv("LIMITER_TEST_CITUS_DSN")
	if dsn == "" {
		t.Skip("LIMITER_TEST_CITUS_DSN is not set: it names the coordinator of a Citus cluster")
	}
	d := openDatabase(t, dsn)
	d.shared, d.citus = true, true
	run(t, d)
}

// onBoth runs a test with tables on a Citus cluster, and on PostgreSQL alone. The store there also
// has WithCitus.
func onBoth(t *testing.T, run func(t *testing.T, d *database)) {
	t.Helper()
	t.Parallel()
	t.Run("cluster", func(t *testing.T) { onCitus(t, run) })
	t.Run("PostgreSQL", func(t *testing.T) { onPostgres(t, run) })
}

func TestCitusStore(t *testing.T) {
	onBoth(t, func(t *testing.T, d *database) {
		for _, h := range handles {
			if h.name == "cached" || h.name == "exec" || h.name == "transaction" {
				t.Run(h.name, func(t *testing.T) {
					storetest.Run(t, func(t *testing.T) limiter.Store {
						schema := d.schema(t) // it can be dropped only after the transaction has ended
						return storeOn(t, h.open(t, d.dsn), schema, postgres.WithCitus())
					})
				})
			}
		}
	})
}

func TestCitusRows(t *testing.T) {
	onBoth(t, func(t *testing.T, d *database) {
		for _, c := range rowRuns {
			schema := d.schema(t)
			t.Run(c.name, func(t *testing.T) {
				c.run(t, d.store(t, schema, few(8), postgres.WithCitus()), rows{connect(t, d.dsn), schema}, 100)
			})
		}
	})
}

func TestCitusGrantsExactly(t *testing.T) {
	onBoth(t, func(t *testing.T, d *database) {
		for kind, policy := range rowtest.Lasting {
			t.Run(kind, func(t *testing.T) {
				schema := d.schema(t)
				exact(t, d, schema, [2]sweeping{
					d.store(t, schema, few(16), postgres.WithCitus()), d.store(t, schema, few(16), postgres.WithCitus()),
				}, policy)
			})
		}
	})
}

// Only the clock of the row's node differs here: it is clock_timestamp(), which read.sql reads.
func TestCitusWorkersClock(t *testing.T) {
	const short = 10 * time.Millisecond
	cases := map[string][2]limiter.Policy{ // one that is free again soon, and one that is not
		"bucket":                      {limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: short}, slow(1)},
		"window":                      {limiter.FixedWindow{Limit: 1, Window: short}, long(1)},
		"window that counts refusals": {limiter.FixedWindow{Limit: 1, Window: short, CountRejected: true}, counting(1)},
	}
	onPostgres(t, func(t *testing.T, d *database) {
		ahead := d.movableClock(t)
		for _, by := range []time.Duration{-2 * time.Hour, -5 * time.Second, -1900 * time.Millisecond, time.Second, 5 * time.Second, 2 * time.Hour} {
			ahead(by)
			store := d.store(t, d.schema(t), nil, postgres.WithQueryExecMode(pgx.QueryExecModeExec), postgres.WithCitus())
			for name, policies := range cases {
				for range 2 {
					began := time.Now()
					for !do(t, store, take(policies[0], name+", short", 1)).Took {
						if time.Since(began) > 3*time.Second/2 {
							t.Errorf("%s, worker %v ahead: takes that fit are refused", name, by)
							break
						}
					}
				}
				for i := range 3 {
					if s := do(t, store, take(policies[1], name, 1)); s.Took != (i == 0) {
						t.Errorf("%s, worker %v ahead: Took = %t at take %d", name, by, s.Took, i)
					}
				}
			}
		}
	})
}

// LIMITER_TEST_CITUS_DSN may name a cluster whose workers have wrong clocks.
func TestCitusCoordinatorsClock(t *testing.T) {
	onCitus(t, func(t *testing.T, d *database) {
		workers := query[string](t, d, `SELECT string_agg(nodeport || ': ' || result, ', ')
			FROM run_command_on_workers('SELECT round(extract(epoch FROM clock_timestamp()))')`)
		t.Logf("the workers' clocks are %s, this process has %d", workers, time.Now().Unix())
		admitAtTheirRates(t, "cluster", d.store(t, d.schema(t), few(16), postgres.WithCitus()))
	})
}

// admitAtTheirRates asks for 8 keys each of a bucket of 10 tokens a second and of a window of 5 for
// 4 s. It checks that each key gets what its policy admits: no more, and not much less, because the
// machine may be busy.
func admitAtTheirRates(t *testing.T, name string, store limiter.Store) {
	t.Helper()
	const asked = 4 * time.Second
	bucket := newLimiter(t, store, limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: 100 * time.Millisecond})
	window := newLimiter(t, store, limiter.FixedWindow{Limit: 5, Window: time.Second})
	granted := make([]int, 16)
	began := time.Now()
	each(len(granted), func(i int) {
		l := bucket
		if i%2 > 0 {
			l = window
		}
		for time.Since(began) < asked {
			r, err := l.Allow(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			if r.Allowed {
				granted[i]++
			}
			<-time.After(r.RetryAfter)
		}
	})
	took := time.Since(began).Seconds()
	for i, n := range granted {
		least, most := 20, 5+10*took+1
		if i%2 > 0 { // one window may end just after the beginning, and one begin just before the end
			least, most = 10, 5*(took+2)
		}
		if n < least || float64(n) > most {
			t.Errorf("%s: key %d was granted %d in %.1f s, want %d to %.0f", name, i, n, took, least, most)
		}
	}
	t.Logf("%s: %v granted in %.1f s", name, granted, took)
}

func TestCitusClockIsSteppedBack(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		storetest.RunClock(t, func(t *testing.T) (limiter.Store, func(time.Duration)) {
			store := d.store(t, d.schema(t), nil, postgres.WithQueryExecMode(pgx.QueryExecModeExec), postgres.WithCitus())
			move := d.movableClock(t)
			return store, func(by time.Duration) {
				d.exec(t, fmt.Sprintf(`CREATE OR REPLACE FUNCTION pg_catalog.statement_timestamp() RETURNS timestamptz
					LANGUAGE sql STABLE AS 'SELECT transaction_timestamp() + interval ''%f seconds'''`, by.Seconds()))
				move(0)
			}
		})
	})
}

func TestCitusSweep(t *testing.T) {
	onBoth(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil, postgres.WithCitus())
		d.rows(t, schema, "a", 600, "59 minutes")
		d.rows(t, schema, "b", 600, "61 minutes")
		if n, err := store.Sweep(bounded(t), 100); err != nil || n != 100 {
			t.Errorf("Sweep(100) = %d, %v", n, err)
		}
		release := d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets WHERE limiter = 'l' AND key = 'b000600' FOR UPDATE")
		n, err := store.Sweep(bounded(t), 10_000)
		if err != nil || n < 600 {
			t.Errorf("Sweep beside a locked row = %d, %v; want all pages but one", n, err)
		}
		release()
		rest, err := store.Sweep(bounded(t), 10_000)
		if err != nil || n+rest != 1100 {
			t.Errorf("Sweep = %d and %d, %v; want 1100", n, rest, err)
		}
		if got := d.count(t, schema, "true"); got != [2]int{600, 600} {
			t.Errorf("%d rows are left, want 600 each", got)
		}
	})
}

func TestCitusNeedsTheOption(t *testing.T) {
	onCitus(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		without := d.store(t, schema, nil)
		if err := d.store(t, schema, nil, postgres.WithCitus()).Check(t.Context()); err != nil {
			t.Errorf("Check of a store with the option: %v", err)
		}
		l := newLimiter(t, without, slow(1000))
		errs := map[string]error{"Check": without.Check(t.Context())}
		_, errs["Sweep"] = without.Sweep(t.Context(), 1)
		_, errs["AllowAll"] = allowAll(t, l, "a", "b")
		var mu sync.Mutex
		each(workers, func(int) { // those that share a statement are refused
			if _, err := l.Allow(t.Context(), secret); err != nil {
				mu.Lock()
				errs["Allow"] = err
				mu.Unlock()
			}
		})
		for _, call := range []string{"Check", "Sweep", "AllowAll", "Allow"} {
			wantError(t, errs[call], limiter.ErrMisconfigured)
			wantAdvice(t, errs[call], "pass postgres.WithCitus()")
		}
	})
}

func TestCitusWithAsyncCommit(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open("", postgres.WithCitus(), postgres.WithAsyncCommit())
	wantError(t, err, limiter.ErrInvalid)
}

// Citus plans such statements for one shard, and evaluates their clock once. Only the cluster's
// tests can show that; this one keeps the statements from leaving what was shown.
func TestCitusStatements(t *testing.T) {
	t.Parallel()
	clock := regexp.MustCompile(`(clock|statement)_timestamp\(\)|\bclock\.at\b`)
	const coalesced = `coalesce\(\$\d::bigint, [^\n]*?_timestamp[^\n]*?\* 1000\)`
	n := 0
	for name, text := range postgres.CitusStatements("limits") {
		op := strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz") // without the kind
		switch op {
		case "Take", "Read", "Add", "Insert", "Swap", "Lock", "Reset", "Clock":
			n++
		case "Refund", "Cancel": // not of every kind
		default:
			continue
		}
		if tables := regexp.MustCompile(`"limits"\.\w+`).FindAllString(text, -1); len(tables) != 1 && op != "Clock" {
			t.Errorf("%s names %d tables:\n%s", name, len(tables), text)
		}
		byKey := strings.Contains(text, "limiter = $1::text AND ") && strings.Contains(text, "key = $2::bytea") ||
			strings.Contains(text, "VALUES ($1::text, $2::bytea,")
		if !byKey && op != "Clock" {
			t.Errorf("%s is not of one key:\n%s", name, text)
		}
		for _, unwanted := range []string{"LATERAL", "unnest", "ANY", "MERGE", "INSERT INTO.*SELECT", "AS (MATERIALIZED )?\\(\\s*(INSERT|UPDATE|DELETE)"} {
			if regexp.MustCompile("(?s)" + unwanted).MatchString(text) {
				t.Errorf("%s has %s:\n%s", name, unwanted, text)
			}
		}
		// What an INSERT or UPDATE does to the row uses the clock that VALUES or a CTE has read.
		text = regexp.MustCompile(coalesced).ReplaceAllString(text, "")
		if _, does, ok := strings.Cut(text, "DO UPDATE"); ok && clock.MatchString(does) {
			t.Errorf("%s reads the clock outside of VALUES:\n%s", name, text)
		}
	}
	if want := 8 * len(tables.All); n != want {
		t.Errorf("%d statements of every kind, want %d", n, want)
	}
}

// An UPSERT that refuses a take locks the row, so a store sends it only if it expects room.
func TestCitusRefusals(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for name, policy := range map[string]limiter.Policy{"bucket": slow(1), "window": long(1)} {
			t.Run(name, func(t *testing.T) {
				schema := d.schema(t)
				refuse := func(t *testing.T, store limiter.Store) {
					t.Helper()
					if do(t, store, take(policy, "k", 1)).Took {
						t.Error("Took = true")
					}
				}
				first, second := d.store(t, schema, nil, postgres.WithCitus()), d.store(t, schema, nil, postgres.WithCitus())
				if !do(t, first, take(policy, "k", 1)).Took {
					t.Fatal("Took = false on a new key")
				}
				granted := d.traces(t, schema, "k")
				t.Run("lock nothing after a grant of this store", func(t *testing.T) {
					if refuse(t, first); d.traces(t, schema, "k") != granted {
						t.Error("the row has a trace")
					}
				})
				t.Run("lock nothing in a transaction of the caller", func(t *testing.T) {
					tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
					defer end(t, tx, false)
					if refuse(t, storeOn(t, tx, schema, postgres.WithCitus())); assigned(t, tx) {
						t.Error("the transaction got an id")
					}
				})
				t.Run("lock the row once after a grant of another store", func(t *testing.T) {
					refuse(t, second)
					locked := d.traces(t, schema, "k")
					if refuse(t, second); locked == granted || d.traces(t, schema, "k") != locked {
						t.Errorf("the row was\n%s, then\n%s and is\n%s", granted, locked, d.traces(t, schema, "k"))
					}
				})
			})
		}
	})
}

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

// operations are those that charge a key. Each returns how many units it charged. The first three never
// exceed the limit.
var operations = []func(ctx context.Context, l *limiter.Limiter, key string) (int64, error){
	func(ctx context.Context, l *limiter.Limiter, key string) (int64, error) {
		r, err := l.AllowUpTo(ctx, key, 3)
		return r.Taken, err
	},
	func(ctx context.Context, l *limiter.Limiter, key string) (int64, error) {
		r, err := l.AllowN(ctx, key, 2)
		if err != nil || !r.Allowed {
			return 0, err
		}
		back, err := l.RefundOf(ctx, key, 1, r)
		return map[bool]int64{true: 1, false: 2}[back], err
	},
	func(ctx context.Context, l *limiter.Limiter, key string) (int64, error) {
		r, err := l.Allow(ctx, key)
		return map[bool]int64{true: 1}[r.Allowed], err
	},
	func(ctx context.Context, l *limiter.Limiter, key string) (int64, error) {
		_, err := l.Charge(ctx, key, 2)
		return 2, err
	},
	func(ctx context.Context, l *limiter.Limiter, key string) (int64, error) {
		r, err := l.Reserve(ctx, key, 1, time.Minute)
		return map[bool]int64{true: 1}[r.Allowed], err
	},
}

// charge carries out an operation.
func (m *moved) charge(ctx context.Context, kind, store, key int) error {
	n, err := operations[kind](ctx, m.limiters[store], m.key(key))
	if err == nil {
		m.charged[key%movedKeys].Add(n)
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
	limits := []*moved{newMoved(t, stores, small, slow(small), "key-"), newMoved(t, stores, small, long(small), "key-")}
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
				err = limits[worker/2%2].charge(t.Context(), kind, store, i)
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

package postgres_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
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
			if h.name == "cached" || h.name == "exec" && d.citus || h.name == "transaction" {
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
				store := storeOn(t, mode(pgx.QueryExecModeExec)(t, d.dsn), schema, postgres.WithCitus())
				c.run(t, store, rows{connect(t, d.dsn), schema}, 100)
			})
		}
	})
}

func TestCitusGrantsExactly(t *testing.T) {
	onBoth(t, func(t *testing.T, d *database) {
		onCitus := direct(few(16), postgres.WithCitus())
		exact(t, d, onCitus, onCitus)
	})
}

// Only the clock of the row's node differs here: it is clock_timestamp(), which read.sql reads.
func TestCitusWorkersClock(t *testing.T) {
	const short = 10 * time.Millisecond
	cases := map[string][2]limiter.Policy{ // one that is free again soon, and one that is not
		"bucket":                      {limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: short}, slow(1)},
		"window":                      {limiter.FixedWindow{Limit: 1, Window: short}, long(1)},
		"window that counts refusals": {limiter.FixedWindow{Limit: 1, Window: short, CountRejected: true}, counting(1)},
		"sliding window":              {limiter.SlidingWindow{Limit: 1, Window: short}, rowtest.Lasting["sliding"](1)},
		"lease":                       {limiter.InFlight{Limit: 1, Hold: short}, places(1)},
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

// LIMITER_TEST_CITUS_DSN may name a cluster whose workers have wrong clocks. The test asks for 8 keys each of a bucket
// of 10 tokens a second and of two windows of 5 for 4 s. It checks that each key gets what its policy admits: no more,
// and not much less, because the machine may be busy.
func TestCitusCoordinatorsClock(t *testing.T) {
	onCitus(t, func(t *testing.T, d *database) {
		workers := query[string](t, d, `SELECT string_agg(nodeport || ': ' || result, ', ')
			FROM run_command_on_workers('SELECT round(extract(epoch FROM clock_timestamp()))')`)
		t.Logf("the workers' clocks are %s, this process has %d", workers, time.Now().Unix())
		store := d.store(t, d.schema(t), few(16), postgres.WithCitus())
		const asked = 4 * time.Second
		limits := []*limiter.Limiter{
			newLimiter(t, store, limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: 100 * time.Millisecond}),
			newLimiter(t, store, limiter.FixedWindow{Limit: 5, Window: time.Second}),
			newLimiter(t, store, limiter.SlidingWindow{Limit: 5, Window: time.Second}),
		}
		granted := make([]int, 24)
		began := time.Now()
		each(len(granted), func(i int) {
			for time.Since(began) < asked {
				r, err := limits[i%3].Allow(t.Context(), fmt.Sprint(i))
				if err != nil {
					t.Error(err)
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
			if i%3 > 0 { // one window may end just after the beginning, and one begin just before the end
				least, most = 10, 5*(took+2)
			}
			if n < least || float64(n) > most {
				t.Errorf("key %d was granted %d in %.1f s, want %d to %.0f", i, n, took, least, most)
			}
		}
		t.Logf("%v granted in %.1f s", granted, took)
	})
}

func TestCitusSweep(t *testing.T) {
	onBoth(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil, postgres.WithCitus())
		d.rows(t, schema, "a", 600, "59 minutes")
		d.rows(t, schema, "b", 600, "61 minutes")
		d.exec(t, "UPDATE "+schema+".limiter_token_buckets SET limiter = 'z' WHERE key < 'b'")
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
		must(t, d.store(t, schema, nil, postgres.WithCitus()).Check(t.Context()))
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
		case "Take", "Read", "Insert", "Swap", "Lock", "Reset", "Clock":
			n++
		case "Add", "Refund", "Cancel", "Release": // not of every kind
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
	if want := 7*len(tables.All) + 1; n != want { // a calendar has a take of its own
		t.Errorf("%d statements of every kind, want %d", n, want)
	}
}

// An UPSERT that refuses a take locks the row, so a store sends it only if it expects room.
func TestCitusRefusals(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		day, _ := midnightIn(1, time.Now(), 12*time.Hour)
		for name, policy := range map[string]limiter.Policy{
			"bucket": slow(1), "window": long(1), "calendar": day, "sliding window": rowtest.Lasting["sliding"](1), "leases": places(1),
		} {
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
				if refuse(t, first); d.traces(t, schema, "k") != granted {
					t.Error("the row has a trace after a grant of this store")
				}
				tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
				if refuse(t, storeOn(t, tx, schema, postgres.WithCitus())); assigned(t, tx) {
					t.Error("a transaction of the caller got an id")
				}
				end(t, tx, false)
				refuse(t, second) // it locks the row once after a grant of another store, but never for a lease
				locked := d.traces(t, schema, "k")
				if refuse(t, second); (locked == granted) != (name == "leases") || d.traces(t, schema, "k") != locked {
					t.Errorf("the row was\n%s, then\n%s and is\n%s", granted, locked, d.traces(t, schema, "k"))
				}
				if name != "leases" && !do(t, second, limiter.Op{Kind: limiter.OpRefund, Name: "test", Key: "k", Policy: policy, Cost: 1}).Took {
					t.Error("a refund gave nothing back")
				}
			})
		}
	})
}

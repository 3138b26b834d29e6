package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// busyOperations are the operations by which many callers use one key, which already has a row.
var busyOperations = []struct {
	name   string
	merges bool // whether few statements carry out many of them
	op     func(i int) limiter.Op
}{
	{"takes", true, func(int) limiter.Op { return take(slow(1<<17), "busy", 1) }},
	{"takes of several costs", true, func(i int) limiter.Op { return take(slow(1<<17), "busy", 1+int64(i%7)) }},
	{"takes in a window", true, func(int) limiter.Op { return take(long(1<<40), "busy", 1) }},
	{"takes that count when they are refused", true, func(int) limiter.Op { return take(counting(1<<40), "busy", 1) }},
	{"reservations", true, func(int) limiter.Op { return reservation(slow(1<<17), time.Hour) }},
	{"reservations of several waits", true, func(i int) limiter.Op { return reservation(slow(1<<17), time.Duration(i)*time.Second) }},
	{"reservations in a window", true, func(int) limiter.Op { return reservation(long(1<<40), time.Hour) }},
	{"refunds", false, func(int) limiter.Op { return ofKind(limiter.OpRefund, slow(1<<17)) }},
	{"refunds in a window", false, func(int) limiter.Op { return ofKind(limiter.OpRefund, long(1<<40)) }},
	{"leases", false, func(int) limiter.Op { return take(places(1<<10), "busy", 1) }},
	{"resets", false, func(int) limiter.Op { return ofKind(limiter.OpReset, slow(1<<17)) }},
	{severalLimits, false, func(int) limiter.Op { return take(slow(1<<17), "busy", 1) }},
	{"takes by two policies", false, func(i int) limiter.Op { return take(slow(1<<17+int64(i%2)), "busy", 1) }},
	{"operations of all kinds", false, func(i int) limiter.Op {
		op := ofKind(limiter.OpKind(1+i%5), slow(1<<17))
		op.Cost = 1 + int64(i%3)
		return op
	}},
}

// severalLimits are decisions over several limits.
const severalLimits = "several limits"

// busyStore makes the store for the operations of a name.
func busyStore(t *testing.T, db postgres.DB, schema, name string) limiter.Store {
	t.Helper()
	s := storeOn(t, db, schema)
	if name == severalLimits {
		return oneOfAll{s}
	}
	return s
}

func ofKind(kind limiter.OpKind, policy limiter.Policy) limiter.Op {
	return limiter.Op{Kind: kind, Name: "test", Key: "busy", Policy: policy, Cost: 1}
}

func reservation(policy limiter.Policy, maxWait time.Duration) limiter.Op {
	return limiter.Op{Kind: limiter.OpTake, Name: "test", Key: "busy", Policy: policy, Cost: 1, MaxWait: maxWait}
}

// If each caller of a locked row waited on a connection of its own, the first two callers would
// use up a pool of two connections.
func TestBusyKeyHoldsOneConnection(t *testing.T) {
	const callers = 200
	onPostgres(t, func(t *testing.T, d *database) {
		for _, c := range busyOperations {
			t.Run(c.name, func(t *testing.T) {
				schema, traced := d.schema(t), new(counter)
				p := pool(t, d.dsn, func(config *pgxpool.Config) { config.MaxConns, config.ConnConfig.Tracer = 2, traced })
				store := busyStore(t, p, schema, c.name)
				do(t, store, c.op(0))
				do(t, store, take(c.op(0).Policy, "busy", 1<<10)) // the row may be unused
				release := d.holdLock(t, lockAll(schema))
				var all sync.WaitGroup
				for i := range callers {
					op, ctx := c.op(i), t.Context()
					op.Timeout = testTimeout
					leaves := i%10 == 9
					if leaves {
						early, leave := context.WithTimeout(ctx, time.Duration(i)*time.Millisecond)
						defer leave()
						ctx = early
					}
					all.Go(func() {
						if _, err := store.Do(ctx, op); err != nil && !(leaves && errors.Is(err, limiter.ErrCanceled)) {
							t.Errorf("operation %d: %v", i, err)
						}
					})
				}
				d.blocked(t, 1)
				other := take(c.op(0).Policy, "other", 1)
				other.Timeout = testTimeout / 3
				testenv.ErrorIs(t, testenv.ErrorOf(store.Do(t.Context(), other)), nil, "another key beside it")
				// A look that is under way has another one for a moment.
				waitFor(t, "the key holds 1 connection", func() bool { return p.Stat().AcquiredConns() <= 1 })
				before := traced.Load()
				release()
				all.Wait()
				// What gives back has a statement of its own, and so may takes whose policies take turns.
				if n := traced.Load() - before; n > callers/10 && c.merges {
					t.Errorf("%d statements for %d callers, want at most a tenth", n, callers)
				}
			})
		}
	})
}

// lockAll is SQL that locks all rows.
func lockAll(schema string) (sql string) {
	for _, table := range tables.All {
		sql += fmt.Sprintf("SELECT FROM %s.%s FOR UPDATE;", schema, table.Name)
	}
	return sql
}

func TestBusyKeyDoesNotPassByFailOpen(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, policy := range []limiter.Policy{slow(1 << 17), counting(1 << 40)} {
			schema := d.schema(t)
			store := d.store(t, schema, few(4))
			l := newLimiter(t, store, policy, limiter.FailOpen(), limiter.WithTimeout(timeout))
			patient := newLimiter(t, store, policy)
			allow := func() {
				testenv.ErrorIs(t, testenv.ErrorOf(patient.Allow(t.Context(), "busy")), nil)
			}
			allow()
			release := d.holdLock(t, lockAll(schema))
			var head sync.WaitGroup
			head.Go(allow)
			d.blocked(t, 1)
			each(workers, func(int) {
				res, err := l.Allow(t.Context(), "busy")
				if !errors.Is(err, limiter.ErrKeyBusy) || !errors.Is(err, limiter.ErrNotApplied) || res.Allowed {
					t.Errorf("%+v: %+v, %v; want a refusal with ErrKeyBusy and ErrNotApplied", policy, res, err)
				}
			})
			if res, err := patient.Allow(t.Context(), "other"); err != nil || res.Source != limiter.SourceStore {
				t.Errorf("%+v: another key: %+v, %v; want a decision of the store", policy, res, err)
			}
			release()
			head.Wait()
		}
	})
}

// Of each operation 300 callers leave at a random instant, half of them by a deadline.
func TestCallersWhoLeaveCostNoConnection(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, c := range busyOperations {
			t.Run(c.name, func(t *testing.T) {
				p := pool(t, d.dsn, few(8))
				store := busyStore(t, p, d.schema(t), c.name)
				do(t, store, c.op(0))
				var left sync.WaitGroup
				for worker := range 4 {
					left.Go(func() {
						for i := range 75 {
							after := 100*time.Microsecond + rand.N(time.Millisecond)
							ctx, leave := context.WithCancel(t.Context())
							if i%2 == 0 {
								time.AfterFunc(after, leave)
							} else {
								ctx, leave = context.WithTimeout(t.Context(), after)
							}
							op := c.op(4*i + worker)
							op.Timeout = testTimeout
							if _, err := store.Do(ctx, op); err != nil && !errors.Is(err, limiter.ErrCanceled) {
								t.Error(err)
							}
							leave()
						}
					})
				}
				left.Wait()
				wantConns(t, p) // a caller that ended its connection would make 300 of them
			})
		}
	})
}

// A look would convert the row to its policy, but need not.
func TestLookAtALockedRow(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store, strict := d.store(t, schema, nil), d.store(t, schema, isolated("serializable"))
		do(t, store, take(limiter.PerHour(10), "k", 10))
		tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
		do(t, storeOn(t, tx, schema), take(slow(5), "other", 1))
		answer := d.send(bounded(t), t, strict, take(slow(5), "other", 1)) // gets 40001
		end(t, tx, true)
		must(t, testenv.ErrorOf(answer()))
		defer d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets FOR UPDATE")()
		for _, store := range []*postgres.Store{store, store, strict} { // the second one is not refused because the first one waited
			look := look(limiter.PerHour(100), "k")
			look.Cost, look.Timeout = 1, time.Second
			testenv.ErrorIs(t, testenv.ErrorOf(store.Do(bounded(t), look)), nil, "a look")
		}
	})
}

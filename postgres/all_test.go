package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

var _ limiter.AllStore = (*postgres.Store)(nil)

// four are takes from four rows, two of each table.
func four(cost int64) []limiter.Op {
	return []limiter.Op{take(slow(5), "a", cost), take(slow(5), "b", cost), take(long(5), "a", cost), take(long(5), "b", cost)}
}

func TestAllStatements(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		r := newTracer(false)
		store := d.store(t, schema, r.in)
		do(t, d.store(t, schema, few(1)), take(long(5), "a", 1)) // the other rows are missing
		for _, step := range []struct {
			name string
			ops  []limiter.Op
			took bool
			want int // statements
		}{
			{"two if rows are missing", four(2), true, 2},
			{"one if all rows exist", four(2), true, 1},
			{"one for a refusal", four(1), false, 1},
			{"one to use up a row", []limiter.Op{take(slow(5), "b", 1)}, true, 1},
			{"one for a refusal beside missing rows", slices.Concat(four(1)[:2], []limiter.Op{take(long(5), "c", 1), take(long(5), "d", 1)}), false, 1},
		} {
			if states, took := doAll(t, store, step.ops...); took != step.took {
				t.Errorf("%s: %+v, want all taken: %t", step.name, states, step.took)
			}
			if sent := r.take(); len(sent) != step.want {
				t.Errorf("%s: sent %v, want %d statements", step.name, sent, step.want)
			}
		}
		if n := query[int](t, d, fmt.Sprintf("SELECT count(*) FROM %s.limiter_fixed_windows WHERE key IN ('c', 'd')", schema)); n != 0 {
			t.Errorf("a refusal added %d rows", n)
		}
	})
}

// A savepoint of the store must neither end the transaction of its caller nor release its locks.
func TestAllInTheCallersTransaction(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for commits, left := range map[bool]int64{true: 1, false: 5} {
			schema := d.schema(t)
			outside := d.store(t, schema, nil)
			do(t, outside, take(slow(6), "b", 1)) // another policy: the statement does not decide
			conn := connect(t, d.dsn)
			for _, onTx := range []bool{true, false} {
				tx := begin(t, conn, pgx.ReadCommitted)
				db := postgres.DB(conn)
				if onTx {
					db = tx
				}
				store := storeOn(t, db, schema)
				for range 2 {
					if states, took := doAll(t, store, four(1)...); !took {
						t.Errorf("%+v", states)
					}
				}
				if conn.PgConn().TxStatus() != 'T' {
					t.Fatal("the transaction has ended")
				}
				end(t, tx, commits)
			}
			wantLeft(t, outside, take(long(5), "a", 0), left, fmt.Sprint("commits ", commits))
		}
	})
}

// The callers wait in the queues of their keys. If they waited for the row lock, they would use up the
// pool, and a timeout there would let requests pass under FailOpen.
func TestAllOfALockedRowHoldOneConn(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		traced := new(counter)
		store := d.store(t, schema, func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.Tracer = 2, traced })
		doAll(t, store, four(1)...)
		before := traced.Load()
		release := d.holdLock(t, "SELECT FROM "+rowOf(schema, four(1)[3])+" FOR UPDATE")
		var all, waiting sync.WaitGroup
		all.Go(func() { doAll(t, store, four(1)...) })
		d.blocked(t, 1)
		for i := range 40 {
			ops := four(1)[i%4:]
			for j := range ops {
				ops[j].Timeout = testTimeout / 1000
			}
			waiting.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%2 == 1 {
					cancel()
					_, err := store.DoAll(ctx, ops)
					wantError(t, err, limiter.ErrCanceled)
					return
				}
				_, err := store.DoAll(ctx, ops)
				wantError(t, err, limiter.ErrNotApplied)
				if !errors.Is(err, limiter.ErrKeyBusy) || limiter.StoreFailed(err) {
					t.Errorf("decision %d: %v, want ErrKeyBusy", i, err)
				}
			})
		}
		if s := do(t, store, take(slow(5), "other", 1)); !s.Took { // it has a connection
			t.Errorf("%+v", s)
		}
		if n := traced.Load() - before; n > 3 {
			t.Errorf("%d statements were sent, want 3", n)
		}
		all.Go(func() { // a take of a key that waits with the others is answered in the end
			op := four(1)[0]
			op.Timeout = testTimeout
			if s := do(t, store, op); !s.Took {
				t.Errorf("%+v", s)
			}
		})
		waiting.Wait()
		release()
		all.Wait()
	})
}

// All decisions share the locked row, and wait for it longer than a server that works lets them.
func TestAllOfALockedRowKeepBreakerShut(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store := d.store(t, schema, nil)
		user := newLimiter(t, store, slow(5), limiter.WithTimeout(4*timeout))
		shared := newLimiter(t, store, long(50), limiter.WithTimeout(4*timeout))
		decide := func(i int) error {
			_, err := limiter.AllowAll(bounded(t), limiter.Claim{Limiter: user, Key: fmt.Sprint(secret, i)}, limiter.Claim{Limiter: shared, Key: secret})
			return err
		}
		must(t, decide(0))
		release := d.holdLock(t, fmt.Sprintf("SELECT FROM %s.limiter_fixed_windows FOR UPDATE", schema))
		defer release()
		for i := range 8 {
			if err := decide(i); !limiter.StoreFailed(err) {
				t.Fatalf("decision %d: %v, want a failure of the store", i, err)
			}
		}
		if res, err := newLimiter(t, store, slow(5)).Allow(bounded(t), "another"); err != nil || !res.Allowed {
			t.Errorf("another key: %+v, %v", res, err)
		}
		if store.Stats().BreakerOpen {
			t.Error("the breaker is open, though the server answers")
		}
	})
}

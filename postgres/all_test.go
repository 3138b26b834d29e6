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
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/postgres"
)

var _ limiter.AllStore = (*postgres.Store)(nil)

func TestDecisionsOverSeveralLimitsOnAnyRows(t *testing.T) {
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		for _, h := range handles {
			t.Run(h.name, func(t *testing.T) {
				t.Parallel()
				for _, path := range allPaths {
					d := newDatabase(t, server)
					schema := d.schema(t)
					db := h.open(t, d.dsn)
					conn := connect(t, d.dsn)
					if tx, ok := db.(pgx.Tx); ok {
						conn = tx.Conn() // the rows are not committed
					}
					t.Run(path.name, func(t *testing.T) {
						rowtest.RunAll(t, path.of(storeOn(t, db, schema)), rows{conn, schema}, 150)
					})
				}
			})
		}
	})
}

// four are takes from four rows, two of each table.
func four(cost int64) []limiter.Op {
	return []limiter.Op{take(slow(5), "a", cost), take(slow(5), "b", cost), take(long(5), "a", cost), take(long(5), "b", cost)}
}

func TestDecisionOverSeveralLimitsSendsOneStatementOrTwoIfRowsAreMissing(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		r := newTracer(false)
		store := d.store(t, schema, r.in)
		do(t, d.store(t, schema, few(1)), take(long(5), "a", 1)) // the other rows are missing
		for _, step := range []struct {
			name string
			cost int64
			took bool
			want []string
		}{
			{"rows are missing", 2, true, []string{"allBoth", "allBoth"}},
			{"all rows exist", 2, true, []string{"allBoth"}},
			{"one is spent", 1, false, []string{"allBoth"}},
		} {
			if states, took := doAll(t, store, four(step.cost)...); took != step.took {
				t.Errorf("%s: %+v", step.name, states)
			}
			if sent := r.take(); !slices.Equal(sent, step.want) {
				t.Errorf("%s: sent %v, want %v", step.name, sent, step.want)
			}
		}
		spent := slices.Concat(four(1)[:2], []limiter.Op{take(long(5), "c", 1), take(long(5), "d", 1)})
		doAll(t, store, take(slow(5), "b", 1)) // now it is
		r.take()
		if states, took := doAll(t, store, spent...); took {
			t.Errorf("%+v", states)
		}
		if sent := r.take(); !slices.Equal(sent, []string{"allBoth"}) {
			t.Errorf("a refusal beside missing rows sent %v, want one statement", sent)
		}
		if n := query[int](t, d, fmt.Sprintf("SELECT count(*) FROM %s.limiter_fixed_windows WHERE key IN ('c', 'd')", schema)); n != 0 {
			t.Errorf("a refusal added %d rows", n)
		}
	})
}

func TestRefusalOfSeveralLimitsLeavesNoTrace(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		for _, spent := range four(4) {
			d.exec(t, "TRUNCATE "+allTables(schema))
			store := d.store(t, schema, nil)
			doAll(t, store, four(1)...)
			do(t, store, spent)
			if spent.Key == "a" {
				do(t, store, take(slow(6), "b", 1)) // the row of another policy that has room
			}
			before := d.traces(t, schema, "a") + d.traces(t, schema, "b")
			tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
			for _, s := range []*postgres.Store{store, storeOn(t, tx, schema)} {
				if states, took := doAll(t, s, four(1)...); took {
					t.Errorf("%+v", states)
				}
			}
			if assigned(t, tx) {
				t.Error("the transaction got an id")
			}
			end(t, tx, false)
			if after := d.traces(t, schema, "a") + d.traces(t, schema, "b"); after != before {
				t.Errorf("the rows were\n%s and are\n%s", before, after)
			}
		}
	})
}

// A savepoint of the store must neither end the transaction of its caller nor release its locks.
func TestDecisionOverSeveralLimitsEndsWithTheTransactionOfItsCaller(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, commits := range []bool{false, true} {
			schema := d.schema(t)
			outside := d.store(t, schema, nil)
			do(t, outside, take(slow(6), "b", 1)) // another policy: the statement does not decide
			conn := connect(t, d.dsn)
			for _, open := range []func() (postgres.DB, pgx.Tx){
				func() (postgres.DB, pgx.Tx) { tx := begin(t, conn, pgx.ReadCommitted); return tx, tx },
				func() (postgres.DB, pgx.Tx) { return conn, begin(t, conn, pgx.ReadCommitted) },
			} {
				db, tx := open()
				store := storeOn(t, db, schema)
				if states, took := doAll(t, store, four(1)...); !took {
					t.Errorf("%+v", states)
				}
				if states, took := doAll(t, store, four(1)...); !took {
					t.Errorf("%+v", states)
				}
				if conn.PgConn().TxStatus() != 'T' {
					t.Fatal("the transaction has ended")
				}
				end(t, tx, commits)
			}
			left := map[bool]int64{true: 1, false: 5}[commits]
			wantLeft(t, outside, take(long(5), "a", 0), left, fmt.Sprint("commits ", commits))
		}
	})
}

func TestDecisionOverSeveralLimitsThatIsTheVictimOfADeadlockIsSentAgainAndChargedOnce(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for deadlocks, class := range map[int]error{2: nil, 3: limiter.ErrNotApplied} {
			schema := d.schema(t)
			store := d.store(t, schema, nil)
			doAll(t, store, four(1)...)
			d.victims(t, schema, deadlocks)
			ops := four(2)
			for i := range ops {
				ops[i].Timeout = testTimeout
			}
			_, err := store.DoAll(bounded(t), ops)
			left := int64(2)
			if class != nil {
				wantError(t, err, class)
				left = 4
			} else if err != nil {
				t.Errorf("after %d deadlocks: %v", deadlocks, err)
			}
			if states, took := doAll(t, store, four(left)...); !took {
				t.Errorf("after %d deadlocks: %d are not left: %+v", deadlocks, left, states)
			}
			if _, took := doAll(t, store, four(1)[:1]...); took {
				t.Errorf("after %d deadlocks: more than %d were left", deadlocks, left)
			}
		}
	})
}

// Its callers wait in the queues of their keys. If they waited for the row lock, they would use up the
// pool, and a timeout there would let requests pass under FailOpen.
func TestDecisionsOverALockedRowHoldOneConnection(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		traced := new(counter)
		store := d.store(t, schema, func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.Tracer = 2, traced })
		doAll(t, store, four(1)...)
		before := traced.Load()
		release := d.holdLock(t, "SELECT FROM "+rowOf(schema, four(1)[3])+" FOR UPDATE")
		var all sync.WaitGroup
		patient := four(1)
		patient[0].Timeout = testTimeout
		all.Go(func() { doAll(t, store, patient...) })
		d.blocked(t, 1)
		var waiting sync.WaitGroup
		for i := range 40 {
			ops := four(1)[i%4:]
			ops[0].Timeout = testTimeout / 1000
			for j := range ops {
				ops[j].Timeout = ops[0].Timeout
			}
			waiting.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%2 == 0 {
					_, err := store.DoAll(ctx, ops)
					wantError(t, err, limiter.ErrNotApplied)
					if !errors.Is(err, limiter.ErrKeyBusy) || limiter.StoreFailed(err) {
						t.Errorf("decision %d: %v, want ErrKeyBusy", i, err)
					}
					return
				}
				cancel()
				_, err := store.DoAll(ctx, ops)
				wantError(t, err, limiter.ErrCanceled)
			})
		}
		if s := do(t, store, take(slow(5), "other", 1)); !s.Took { // it has a connection
			t.Errorf("%+v", s)
		}
		if n := traced.Load() - before; n > 3 {
			t.Errorf("%d statements were sent, want 3", n)
		}
		all.Go(func() {
			// A single take of a key that waits with the others, and is answered in the end.
			op := four(1)[0]
			op.Timeout = testTimeout
			if s, err := store.Do(t.Context(), op); err != nil || !s.Took {
				t.Errorf("%+v, %v", s, err)
			}
		})
		waiting.Wait()
		release()
		all.Wait()
	})
}

// Citus ends transactions as victims of deadlocks that do not exist. No caller must see that.
func TestCitusDecisionOverSeveralLimitsIsSentAgainAfterDeadlocks(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil, postgres.WithCitus())
		doAll(t, store, four(1)...)
		writes := d.victims(t, schema, 10)
		if states, took := doAll(t, store, four(2)...); !took {
			t.Errorf("%+v", states)
		}
		if n := writes(); n != 18 {
			t.Errorf("%d writes, want 10 that failed, and a lock and a change of each row", n)
		}
		rowtest.RunAll(t, store, rows{connect(t, d.dsn), schema}, 300)
	})
}

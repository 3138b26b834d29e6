package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/postgres"
)

// connection is a connection, one of a pool, or a pgx.Tx.
type connection interface {
	postgres.DB
	Begin(ctx context.Context) (pgx.Tx, error)
}

// connections are the ways to one session, by name.
func connections(t *testing.T, dsn string) map[string]connection {
	t.Helper()
	pooled, err := pool(t, dsn, few(1)).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pooled.Release)
	return map[string]connection{"connection": connect(t, dsn), "connection of a pool": pooled}
}

func TestTakesUnderTheLockOnAnyRow(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		begun := connect(t, d.dsn)
		begin(t, begun, pgx.ReadCommitted)
		tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
		seen := connect(t, d.dsn)
		for _, c := range []struct {
			name string
			db   postgres.DB
			conn *pgx.Conn // sees what db writes
		}{
			{"pool", pool(t, d.dsn, few(1)), seen},
			{"pool that is serializable by default", pool(t, d.dsn, isolated("serializable")), seen},
			{"pgbouncer", mode(pgx.QueryExecModeExec)(t, dbtest.PgBouncer(t, d.dsn)), seen},
			{"connection", connect(t, d.dsn), seen},
			{"connection in a transaction", begun, begun},
			{"transaction", tx, tx.Conn()},
		} {
			schema := d.schema(t)
			t.Run(c.name, func(t *testing.T) {
				rowtest.Run(t, postgres.RowLocked{Store: storeOn(t, c.db, schema)}, rows{c.conn, schema}, 60)
			})
		}
	})
}

func TestTakesUnderTheLockAreGrantedExactly(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, level := range []string{"read committed", "serializable"} {
			schema := d.schema(t)
			store := postgres.RowLocked{Store: d.store(t, schema, isolated(level))}
			for _, policy := range []limiter.Policy{slow(50), long(50), counting(50)} {
				do(t, store, take(policy, "hot", 1)) // no row, no lock
				var granted atomic.Int64
				each(16, func(int) {
					for range 5 {
						s, err := store.Do(bounded(t), take(policy, "hot", 1))
						if err != nil {
							t.Errorf("Do: %v", err)
						}
						if s.Took {
							granted.Add(1)
						}
					}
				})
				if granted.Load() != 49 {
					t.Errorf("%s, %+v: %d were granted, want 49", level, policy, granted.Load())
				}
				do(t, store, limiter.Op{Kind: limiter.OpReset, Name: "test", Key: "hot", Policy: policy})
			}
		}
	})
}

func TestTransactionOnAConnectionStaysTheCallers(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		outside := d.store(t, schema, nil)
		for name, conn := range connections(t, d.dsn) {
			for way, on := range map[string]func(tx pgx.Tx) limiter.Store{
				"by the hot statement": func(pgx.Tx) limiter.Store { return storeOn(t, conn, schema) },
				"under the lock":       func(pgx.Tx) limiter.Store { return postgres.RowLocked{Store: storeOn(t, conn, schema)} },
				"on the transaction":   func(tx pgx.Tx) limiter.Store { return storeOn(t, tx, schema) },
			} {
				for _, policy := range []limiter.Policy{slow(3), long(3)} {
					key := fmt.Sprint(name, way)
					do(t, outside, take(policy, key, 1))
					before := do(t, outside, look(policy, key)).Row
					for _, commit := range []bool{false, true} {
						tx, err := conn.Begin(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						if s := do(t, on(tx), take(policy, key, 1)); !s.Took {
							t.Errorf("%s, %s: Took = false", name, way)
						}
						if row := do(t, outside, look(policy, key)).Row; row != before {
							t.Errorf("%s, %s, %T: others see the take before the caller's commit", name, way, policy)
						}
						end(t, tx, commit)
						if row := do(t, outside, look(policy, key)).Row; (row != before) != commit {
							t.Errorf("%s, %s, %T: committed %t, the row was\n%+v and is\n%+v", name, way, policy, commit, before, row)
						}
					}
				}
			}
		}
	})
}

func TestTakeThatFailsUnderTheLockLeavesTheCallersTransactionUsable(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		wrong := take(slow(1), secret, 1)
		wrong.At = 1<<62 + 1 // which no table holds
		conns := connections(t, d.dsn)
		conns["transaction"] = begin(t, connect(t, d.dsn), pgx.ReadCommitted)
		for name, conn := range conns {
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			store := postgres.RowLocked{Store: storeOn(t, conn, schema)}
			_, err = store.Do(t.Context(), wrong)
			wantError(t, err, limiter.ErrInvalid)
			if s := do(t, store, take(slow(1), name, 1)); !s.Took {
				t.Errorf("%s: Took = false", name)
			}
			end(t, tx, true)
		}
	})
}

func TestCommitOfATakeUnderTheLockWhoseAnswerIsLostHasAnUnknownOutcome(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		direct := d.store(t, schema, nil)
		strict := func(c *pgxpool.Config) {
			few(1)(c)
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		}
		for name, change := range map[string]func(*pgxpool.Config){"pool": few(1), "strict pool": strict, "connection": few(1)} {
			p := &cutter{}
			open := func() postgres.DB {
				pool := pool(t, d.dsn, p.in(change))
				if name != "connection" {
					return pool
				}
				conn, err := pool.Acquire(bounded(t))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(conn.Release)
				return conn
			}
			store := postgres.RowLocked{Store: storeOn(t, open(), schema)}
			for _, policy := range []limiter.Policy{slow(9), long(9)} {
				key := secret + name
				do(t, direct, take(policy, key, 1))
				before := do(t, direct, look(policy, key)).Row
				if name == "connection" && policy == limiter.Policy(long(9)) {
					store = postgres.RowLocked{Store: storeOn(t, open(), schema)} // the other is cut
				}
				p.armed.Store(true)
				_, err := store.Do(bounded(t), take(policy, key, 1))
				p.armed.Store(false)
				wantError(t, err, limiter.ErrOutcomeUnknown)
				if do(t, direct, look(policy, key)).Row == before {
					t.Errorf("%s, %T: the take was not carried out; this test proves nothing", name, policy)
				}
			}
			if p.cuts.Load() == 0 {
				t.Errorf("%s: no COMMIT was cut", name)
			}
		}
	})
}

// noTransactions is a DB that cannot begin one.
type noTransactions struct{ postgres.DB }

func TestDatabaseThatCannotBeginATransactionIsNamedWhereOneIsNeeded(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		store := storeOn(t, noTransactions{connect(t, d.dsn)}, d.schema(t))
		do(t, store, take(slow(2), secret, 1))
		_, err := postgres.RowLocked{Store: store}.Do(t.Context(), take(slow(2), secret, 1))
		wantError(t, err, limiter.ErrMisconfigured)
		wantAdvice(t, err, "pass a pool")
	})
}

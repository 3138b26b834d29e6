package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/postgres"
)

func begin(t *testing.T, conn *pgx.Conn, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	must(t, err)
	return tx
}

// end commits a transaction or rolls it back.
func end(t *testing.T, tx pgx.Tx, commit bool) {
	t.Helper()
	end := tx.Rollback
	if commit {
		end = tx.Commit
	}
	must(t, end(t.Context()))
}

// wantCode checks that an error is the server's, and its SQLSTATE.
func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if server, ok := errors.AsType[*pgconn.PgError](err); !ok || server.Code != code {
		t.Errorf("%v, want SQLSTATE %s", err, code)
	}
}

func TestFailureInATransaction(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		role, dsn := d.role(t)
		d.exec(t, "GRANT USAGE ON SCHEMA "+schema+" TO "+role)
		for name, opt := range map[string]limiter.Option{
			"FailClosed": limiter.FailClosed(), "FailOpen": limiter.FailOpen(), "FailLocal": limiter.FailLocal(memory.New()),
		} {
			for cause, fails := range map[string]struct {
				dsn   string
				lock  string // that another transaction holds
				class error
				code  string
			}{
				"a missing privilege": {dsn, "SELECT 1", limiter.ErrMisconfigured, "42501"},
				"a lock timeout":      {d.dsn, "LOCK TABLE " + schema + ".limiter_token_buckets IN EXCLUSIVE MODE", limiter.ErrNotApplied, "55P03"},
			} {
				tx := begin(t, connect(t, fails.dsn), pgx.ReadCommitted)
				must(t, testenv.ErrorOf(tx.Exec(t.Context(), "SET LOCAL lock_timeout = '1ms'")))
				release := d.holdLock(t, fails.lock)
				l := newLimiter(t, storeOn(t, tx, schema), slow(5), opt)
				res, err := l.Allow(bounded(t), secret)
				release()
				if res.Allowed || res.Source != limiter.SourcePolicy {
					t.Errorf("%s, %s: Allow = %+v, %v", name, cause, res, err)
				}
				wantError(t, err, fails.class)
				wantCode(t, err, fails.code) // it was not sent again
				err = l.Wait(bounded(t), secret)
				wantError(t, err, limiter.ErrNotApplied)
				wantCode(t, err, "25P02") // PostgreSQL executes nothing more in the transaction
				end(t, tx, false)
			}
		}
		tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
		store := storeOn(t, tx, schema)
		end(t, tx, true)
		_, err := store.Do(t.Context(), take(slow(1), secret, 1)) // the transaction has ended
		wantError(t, err, limiter.ErrNotApplied)
	})
}

func TestTransactionStaysTheCallers(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		outside := d.store(t, schema, nil)
		pooled, err := pool(t, d.dsn, few(1)).Acquire(t.Context())
		must(t, err)
		t.Cleanup(pooled.Release)
		for name, conn := range map[string]interface {
			postgres.DB
			Begin(ctx context.Context) (pgx.Tx, error)
		}{"connection": connect(t, d.dsn), "connection of a pool": pooled, "transaction": begin(t, connect(t, d.dsn), pgx.ReadCommitted)} {
			if outside.Provisional() || !storeOn(t, conn, schema).Provisional() {
				t.Errorf("%s: answers of a pool alone are final", name)
			}
			for way, on := range map[string]func(tx pgx.Tx) limiter.Store{
				"by one statement":   func(pgx.Tx) limiter.Store { return storeOn(t, conn, schema) },
				"under the lock":     func(pgx.Tx) limiter.Store { return postgres.RowLocked{Store: storeOn(t, conn, schema)} },
				"on the transaction": func(tx pgx.Tx) limiter.Store { return storeOn(t, tx, schema) },
				"several limits": func(pgx.Tx) limiter.Store {
					return oneOfAll{postgres.SettledAll{Store: storeOn(t, conn, schema)}}
				},
				"several limits on the transaction": func(tx pgx.Tx) limiter.Store {
					return oneOfAll{postgres.SettledAll{Store: storeOn(t, tx, schema)}}
				},
			} {
				for _, policy := range []limiter.Policy{slow(3), long(3)} {
					key := fmt.Sprint(name, way)
					do(t, outside, take(policy, key, 1))
					before := do(t, outside, look(policy, key)).Row
					for _, commit := range []bool{false, true} {
						tx, err := conn.Begin(t.Context())
						must(t, err)
						wantError(t, testenv.ErrorOf(postgres.New(tx, postgres.WithAsyncCommit())), limiter.ErrInvalid)
						if way == "under the lock" { // a take that fails leaves the transaction usable
							wrong := take(policy, key, 1)
							wrong.At = 1<<62 + 1 // which no table holds
							wantError(t, testenv.ErrorOf(on(tx).Do(t.Context(), wrong)), limiter.ErrInvalid)
						}
						if s := do(t, on(tx), take(policy, key, 1)); !s.Took {
							t.Errorf("%s, %s: Took = false", name, way)
						}
						testenv.Equal(t, do(t, outside, look(policy, key)).Row, before, name, way, fmt.Sprintf("%T: what others see before the commit", policy))
						end(t, tx, commit)
						visible := commit && name != "transaction" // the outer transaction goes on
						if row := do(t, outside, look(policy, key)).Row; (row != before) != visible {
							t.Errorf("%s, %s, %T: committed %t, the row was\n%+v and is\n%+v", name, way, policy, commit, before, row)
						}
					}
				}
			}
		}
		pair := []limiter.Op{take(rowtest.Lasting["sliding"](5), "a", 1), take(rowtest.Lasting["sliding"](5), "b", 1)}
		doAll(t, outside, pair...)
		inside := storeOn(t, begin(t, connect(t, d.dsn), pgx.ReadCommitted), schema)
		release := d.holdLock(t, "SELECT FROM "+rowOf(schema, pair[1])+" FOR UPDATE")
		var waiting sync.WaitGroup
		waiting.Go(func() {
			states, took := doAll(t, inside, pair...)
			testenv.Equal(t, took, true, "taken after the wait for the lock:", states)
		})
		d.blocked(t, 1)
		release()
		waiting.Wait()
	})
}

func TestDatabaseWithoutTransactions(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		store := storeOn(t, struct{ postgres.DB }{connect(t, d.dsn)}, d.schema(t)) // it has no Begin
		do(t, store, take(slow(2), secret, 1))
		_, err := postgres.RowLocked{Store: store}.Do(t.Context(), take(slow(2), secret, 1))
		wantError(t, err, limiter.ErrMisconfigured)
		wantAdvice(t, err, "pass a pool")
	})
}

func TestSnapshotNeverOverAdmits(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		outside := d.store(t, schema, nil)
		conn := connect(t, d.dsn)
		for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
			for _, policy := range []limiter.Policy{slow(2), long(2)} {
				snapshot := func() (pgx.Tx, limiter.Store) {
					tx := begin(t, conn, level)
					must(t, testenv.ErrorOf(tx.Exec(t.Context(), "SELECT FROM "+schema+".limiter_token_buckets")))
					return tx, storeOn(t, tx, schema)
				}
				key := string(level) + secret

				// The key is used up behind the snapshot, in which it is not.
				tx, inside := snapshot()
				do(t, outside, take(policy, key, 2))
				_, err := inside.Do(t.Context(), take(policy, key, 1))
				wantError(t, err, limiter.ErrNotApplied)
				wantCode(t, err, "40001") // it was not sent again
				end(t, tx, false)

				// The key is freed behind the snapshot, in which it is used up.
				tx, inside = snapshot()
				do(t, outside, limiter.Op{Kind: limiter.OpReset, Name: "test", Key: key, Policy: policy})
				if s := do(t, inside, take(policy, key, 1)); s.Took {
					t.Errorf("%s, %T: granted from a snapshot in which nothing is left", level, policy)
				}
				end(t, tx, false)
			}
		}
	})
}

func TestConnectionInUseMakesOthersWait(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store := storeOn(t, connect(t, d.dsn), schema)
		do(t, store, take(slow(3), "k", 1))
		release := d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets FOR UPDATE")
		answer := d.send(bounded(t), t, store, take(slow(3), "k", 1))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantError(t, testenv.ErrorOf(store.Do(ctx, take(slow(3), secret, 1))), limiter.ErrCanceled)

		release()
		must(t, testenv.ErrorOf(answer()))
		testenv.Equal(t, do(t, store, look(slow(3), secret)).Row.FullAt, 0, "the call that left was charged")
	})
}

// Otherwise what the next operations take would never be committed.
func TestTransactionThatCannotEnd(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		r := newTracer(false)
		conn, err := pool(t, d.dsn, r.in).Acquire(t.Context())
		must(t, err)
		defer conn.Release()
		store := storeOn(t, conn, schema)
		ops := []limiter.Op{take(slow(4), "k", 1), take(limiter.SlidingWindow{Limit: 4, Window: time.Hour}, "k", 1)}
		ctx, cancel := context.WithCancel(t.Context())
		r.answered = cancel
		wantError(t, testenv.ErrorOf(store.DoAll(ctx, ops)), limiter.ErrCanceled)
		if !conn.Conn().IsClosed() && conn.Conn().PgConn().TxStatus() != 'I' {
			t.Error("the transaction of the store is open")
		}
	})
}

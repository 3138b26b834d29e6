package postgres_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

// victims makes the first n writes to the tables the victims of deadlocks, and returns
// what tells how many writes there were. A sequence counts what was rolled back, too.
func (d *database) victims(t *testing.T, schema string, n int) (writes func() int) {
	t.Helper()
	d.exec(t, "CREATE SEQUENCE "+schema+".writes")
	d.trigger(t, schema, "victim", "BEFORE INSERT OR UPDATE", fmt.Sprintf(`
		IF nextval('%s.writes') <= %d THEN
			RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01';
		END IF;
		RETURN NEW;`, schema, n))
	return func() int { return query[int](t, d, "SELECT last_value FROM "+schema+".writes") }
}

func TestTakeThatIsTheVictimOfADeadlockIsSentAgainAndChargedOnce(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, c := range []struct {
			deadlocks, writes int
			class             error
		}{
			{1, 2, nil},
			{2, 3, nil},
			{3, 3, limiter.ErrNotApplied},
		} {
			for _, policy := range []limiter.Policy{slow(5), long(5), counting(5)} {
				schema := d.schema(t)
				writes := d.victims(t, schema, c.deadlocks)
				store := d.store(t, schema, nil)
				op := take(policy, secret, 3)
				op.Timeout = testTimeout
				s, err := store.Do(bounded(t), op)
				if c.class != nil {
					wantError(t, err, c.class)
				} else if err != nil || !s.Took {
					t.Errorf("%T after %d deadlocks: %+v, %v", policy, c.deadlocks, s, err)
				}
				if n := writes(); n != c.writes {
					t.Errorf("%T after %d deadlocks: it was sent %d times, want %d", policy, c.deadlocks, n, c.writes)
				}
				left := int64(2)
				if c.class != nil {
					left = 5
				}
				wantLeft(t, store, take(policy, secret, 0), left, fmt.Sprintf("%T after %d deadlocks", policy, c.deadlocks))
			}
		}
	})
}

// opposed returns two transactions that have each taken from one of two keys, and the errors
// that they get when each then takes from the other's key. PostgreSQL ends the deadlock by
// failing one of them, the victim.
func opposed(t *testing.T, d *database, schema string, keys [2]string, opt limiter.Option) (txs [2]pgx.Tx, errs [2]error, victim int) {
	t.Helper()
	var limiters [2]*limiter.Limiter
	for i := range txs {
		txs[i] = begin(t, connect(t, d.dsn), pgx.ReadCommitted)
		limiters[i] = newLimiter(t, storeOn(t, txs[i], schema), slow(5), opt)
		if res, err := limiters[i].Allow(bounded(t), keys[i]); err != nil || !res.Allowed {
			t.Fatalf("the first take: %+v, %v", res, err)
		}
	}
	var wait sync.WaitGroup
	for i, l := range limiters {
		wait.Go(func() {
			res, err := l.Allow(bounded(t), keys[1-i])
			if res.Allowed != (err == nil) {
				t.Errorf("Allow = %+v, %v", res, err)
			}
			errs[i] = err
		})
	}
	wait.Wait()
	if errs[0] == nil {
		victim = 1
	}
	return txs, errs, victim
}

// Two transactions of an application take from two keys, each from the other one first. The
// victim's transaction is dead, so no failure policy may let its request pass.
func TestTransactionsThatTakeInOppositeOrderCostOneOfThemItsTakes(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		outside := d.store(t, schema, nil)
		for name, opt := range failurePolicies() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				keys := [2]string{secret + "/a/" + name, secret + "/b/" + name}
				for _, key := range keys {
					do(t, outside, take(slow(5), key, 1)) // makes the row
				}
				txs, errs, victim := opposed(t, d, schema, keys, opt)
				wantError(t, errs[victim], limiter.ErrNotApplied)
				if server, ok := errors.AsType[*pgconn.PgError](errs[victim]); !ok || server.Code != "40P01" {
					t.Errorf("it is no deadlock: %v", errs[victim])
				}
				if errs[1-victim] != nil {
					t.Errorf("the other one fails, too: %v", errs[1-victim])
				}
				wantDead(t, txs[victim])
				end(t, txs[victim], false)
				end(t, txs[1-victim], true)
				for _, key := range keys { // 1 before, and 1 of who committed
					wantLeft(t, outside, take(slow(5), key, 0), 3, key)
				}
			})
		}
	})
}

// A new key is added by somebody else after a statement's snapshot, and updated by a third one at
// once, while each of the two statements is about to have the row that the other one needs next.
func TestTakesThatGoTogetherNeverWaitForEachOther(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil)
		texts := postgres.Statements(schema, false)
		for _, c := range []struct {
			statement, table string
			policy           limiter.Policy
			period, cost     int64
		}{
			{"bucketTakes", "limiter_token_buckets", slow(5), int64(slow(5).Step()), int64(slow(5).Step())},
			{"windowTakes", "limiter_fixed_windows", long(5), int64(long(5).Window), 1},
		} {
			do(t, store, take(c.policy, "b", 1))
			row := take(c.policy, "b", 1)
			var wait sync.WaitGroup
			both := func() {
				conn := connect(t, d.dsn)
				wait.Go(func() {
					_, err := conn.Exec(bounded(t), texts[c.statement], []string{row.Name, row.Name}, [][]byte{[]byte("a"), []byte("b")},
						[]int64{c.period, c.period}, []int64{5, 5}, []int64{c.cost, c.cost}, []int64{0, 0}, []int64{1, 1}, "0")
					if err != nil {
						t.Errorf("%s: %v", c.statement, err)
					}
				})
			}
			release := d.holdLock(t, fmt.Sprintf("SELECT FROM %s.%s WHERE key = 'b' FOR UPDATE", schema, c.table))
			both()
			d.blocked(t, 1)
			added := make(chan struct{})
			wait.Go(func() {
				defer close(added)
				do(t, store, take(c.policy, "a", 1))
			})
			waiting := 1
			select {
			case <-added:
			case <-time.After(200 * time.Millisecond): // it waits for the first one, which has added the key
				waiting++
				d.blocked(t, waiting)
			}
			both()
			d.blocked(t, waiting+1)
			release()
			wait.Wait()
		}
	})
}

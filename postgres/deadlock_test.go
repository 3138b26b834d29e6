package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

// victims fails the first n writes to the tables as victims of deadlocks, and returns a function that counts
// the writes. The sequence also counts those that were rolled back.
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

func TestDeadlockVictim(t *testing.T) {
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
				t.Run(fmt.Sprintf("%T, %d times: is sent again and charged once", policy, c.deadlocks), func(t *testing.T) {
					schema := d.schema(t)
					writes := d.victims(t, schema, c.deadlocks)
					store := d.store(t, schema, nil)
					op := take(policy, secret, 3)
					op.Timeout = testTimeout
					s, err := store.Do(bounded(t), op)
					left := int64(2)
					if c.class != nil {
						wantError(t, err, c.class)
						left = 5
					} else if err != nil || !s.Took {
						t.Errorf("%+v, %v; want a grant", s, err)
					}
					if n := writes(); n != c.writes {
						t.Errorf("it was sent %d times, want %d", n, c.writes)
					}
					wantLeft(t, store, take(policy, secret, 0), left, "afterwards")
				})
			}
			t.Run(fmt.Sprintf("AllowAll, %d times: is sent again and charged once", c.deadlocks), func(t *testing.T) {
				schema := d.schema(t)
				store := d.store(t, schema, nil)
				doAll(t, store, four(1)...)
				d.victims(t, schema, c.deadlocks)
				ops := four(2)
				for i := range ops {
					ops[i].Timeout = testTimeout
				}
				_, err := store.DoAll(bounded(t), ops)
				left := int64(2)
				if c.class != nil {
					wantError(t, err, c.class)
					left = 4
				} else if err != nil {
					t.Error(err)
				}
				for _, op := range four(0) {
					wantLeft(t, store, op, left, "afterwards")
				}
			})
		}
		// Citus ends transactions as victims of deadlocks that do not exist. No caller must see that.
		t.Run("AllowAll on Citus, 10 times: is sent again", func(t *testing.T) {
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
		})
	})
}

// Two transactions of an application take from two keys, each from the other one first. The victim's
// transaction is dead, so no failure policy may let its request pass.
func TestOpposedTransactions(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		outside := d.store(t, schema, nil)
		for name, opt := range failurePolicies() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				keys := [2]string{secret + "/a/" + name, secret + "/b/" + name}
				var txs [2]pgx.Tx
				var limiters [2]*limiter.Limiter
				for i, key := range keys {
					do(t, outside, take(slow(5), key, 1)) // makes the row
					txs[i] = begin(t, connect(t, d.dsn), pgx.ReadCommitted)
					limiters[i] = newLimiter(t, storeOn(t, txs[i], schema), slow(5), opt)
					if res, err := limiters[i].Allow(bounded(t), key); err != nil || !res.Allowed {
						t.Fatalf("the first take: %+v, %v", res, err)
					}
				}
				var errs [2]error
				each(2, func(i int) {
					var res limiter.Result
					if res, errs[i] = limiters[i].Allow(bounded(t), keys[1-i]); res.Allowed != (errs[i] == nil) {
						t.Errorf("Allow = %+v, %v", res, errs[i])
					}
				})
				victim := 0
				if errs[0] == nil {
					victim = 1
				}
				wantError(t, errs[victim], limiter.ErrNotApplied)
				wantCode(t, errs[victim], "40P01") // a deadlock, which was not sent again
				if errs[1-victim] != nil {
					t.Errorf("the other transaction also fails: %v", errs[1-victim])
				}
				_, err := txs[victim].Exec(bounded(t), "SELECT 1")
				wantCode(t, err, "25P02") // PostgreSQL executes nothing more in the transaction
				end(t, txs[victim], false)
				end(t, txs[1-victim], true)
				for _, key := range keys { // 1 before, and 1 of the transaction that committed
					wantLeft(t, outside, take(slow(5), key, 0), 3, key)
				}
			})
		}
	})
}

// A session adds a new key after a statement's snapshot, and a third one updates it at once. Each of the two
// statements is then about to have the row that the other one needs next.
func TestMergedTakesDoNotDeadlock(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store := d.store(t, schema, nil)
		texts := postgres.Statements(schema, false)
		for _, c := range []struct {
			statement           string
			policy              limiter.Policy
			period, cost, reach int64
		}{
			{"bucketTakes", slow(5), int64(slow(5).Step()), int64(slow(5).Step()), 5 * int64(slow(5).Step())},
			{"windowTakes", long(5), int64(long(5).Window), 1, 5},
		} {
			row := take(c.policy, "b", 1)
			do(t, store, row)
			var wait sync.WaitGroup
			both := func() {
				conn := connect(t, d.dsn)
				wait.Go(func() {
					_, err := conn.Exec(bounded(t), texts[c.statement], []string{row.Name, row.Name}, [][]byte{[]byte("a"), []byte("b")},
						[]int64{c.period, c.period}, []int64{5, 5}, []int64{c.cost, c.cost}, []int64{0, 0}, []int64{1, 1}, []int64{c.reach, c.reach}, "0")
					if err != nil {
						t.Errorf("%s: %v", c.statement, err)
					}
				})
			}
			release := d.holdLock(t, "SELECT FROM "+rowOf(schema, row)+" FOR UPDATE")
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

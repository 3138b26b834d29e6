package postgres_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
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
		for name, ops := range map[string][]limiter.Op{
			"a bucket": {take(slow(5), secret, 2)}, "a window": {take(long(5), secret, 2)},
			"a window that counts refusals": {take(counting(5), secret, 2)}, "AllowAll": four(2),
		} {
			for deadlocks := 1; deadlocks <= 3; deadlocks++ {
				t.Run(fmt.Sprintf("%s, %d times: is sent again and charged once", name, deadlocks), func(t *testing.T) {
					schema := d.schema(t)
					store := d.store(t, schema, nil)
					for i := range ops {
						first := ops[i]
						first.Cost, ops[i].Timeout = 1, testTimeout
						do(t, store, first)
					}
					writes := d.victims(t, schema, deadlocks)
					took, err := carryOut(t, store, ops...)
					left, want := int64(2), deadlocks+2 // the last one inserts, and then updates
					if deadlocks == 3 {
						wantError(t, err, limiter.ErrNotApplied)
						left, want = 4, 3
					} else if !took {
						t.Errorf("%v, want a grant", err)
					}
					if n := writes(); len(ops) == 1 && n != want {
						t.Errorf("%d writes, want %d", n, want)
					}
					for _, op := range ops {
						wantLeft(t, store, op, left, "afterwards")
					}
				})
			}
		}
		// Citus ends transactions as victims of deadlocks that do not exist. No caller must see that.
		t.Run("AllowAll on Citus, 10 times: is sent again", func(t *testing.T) {
			schema := d.schema(t)
			store := d.store(t, schema, nil, postgres.WithCitus())
			doAll(t, store, four(1)...)
			writes := d.victims(t, schema, 10)
			wantCode(t, testenv.ErrorOf(storeOn(t, begin(t, connect(t, d.dsn), pgx.ReadCommitted), schema, postgres.WithCitus()).DoAll(bounded(t), four(2))), "40P01")
			if states, took := doAll(t, store, four(2)...); !took {
				t.Errorf("%+v", states)
			}
			if n := writes(); n != 18 {
				t.Errorf("%d writes, want 10 that failed, and a lock and a change of each row", n)
			}
			d.exec(t, "CREATE OR REPLACE FUNCTION "+schema+`.victim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF NEW IS DISTINCT FROM OLD THEN
					PERFORM nextval('`+schema+`.writes'); RAISE EXCEPTION 'lost' USING ERRCODE = 'XX000';
				END IF; RETURN NEW; END $$`)
			wantError(t, testenv.ErrorOf(store.DoAll(bounded(t), four(1))), limiter.ErrNotApplied)
			wantError(t, testenv.ErrorOf(store.Do(bounded(t), four(1)[0])), limiter.ErrOutcomeUnknown)
			testenv.Equal(t, writes(), 20, "writes, with two more that failed")
		})
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
						[]int64{c.period, c.period}, []int64{5, 5}, []int64{c.cost, c.cost}, []int64{0, 0}, []int64{1, 1}, []int64{c.reach, c.reach}, "0", nil)
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

func TestMergedTakes(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for kind, policy := range map[string]limiter.Policy{"bucket": slow(4), "window": long(4), "sliding": limiter.SlidingWindow{Limit: 4, Window: time.Hour}} {
			// That is not in the snapshot of the merged statement.
			t.Run(kind+": count what was taken while they waited", func(t *testing.T) {
				schema := d.schema(t)
				store := d.store(t, schema, nil)
				do(t, store, take(policy, "k", 1))
				tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
				do(t, storeOn(t, tx, schema), take(policy, "k", 2))
				var waiting sync.WaitGroup
				waiting.Go(func() {
					states, err := postgres.TakeTogether(bounded(t), store, true, slices.Repeat([]limiter.Op{take(policy, "k", 1)}, 5)...)
					states = slices.DeleteFunc(states, func(s limiter.State) bool { return !s.Took })
					if err != nil || len(states) != 1 {
						t.Errorf("%d were granted, %v; want the 1 that was left", len(states), err)
					}
				})
				d.blocked(t, 1)
				end(t, tx, true)
				waiting.Wait()
				for name, store := range map[string]*postgres.Store{"one node": store, "Citus": d.store(t, schema, nil, postgres.WithCitus())} {
					for _, used := range []int64{0, 1} {
						key := fmt.Sprint(name, used)
						if used > 0 {
							do(t, store, take(policy, key, used))
						}
						states, err := postgres.TakeTogether(bounded(t), store, true, slices.Repeat([]limiter.Op{take(policy, key, 3-used)}, 5)...)
						must(t, err)
						testenv.Equal(t, len(slices.DeleteFunc(states, func(s limiter.State) bool { return !s.Took })), 1, "granted on", key)
						for _, left := range []bool{true, false} {
							testenv.Equal(t, do(t, store, take(policy, key, 1)).Took, left, "one is left of", key)
						}
					}
				}
				upTo := []limiter.Op{take(policy, "some", 1), take(policy, "some", 4)}
				upTo[0].Kind, upTo[1].Kind = limiter.OpTakeUpTo, limiter.OpTakeUpTo
				states, err := postgres.TakeTogether(bounded(t), store, false, upTo...)
				must(t, err)
				testenv.Equal(t, states[0].Taken+states[1].Taken, 4, "taken by two at once")
			})
		}
		for name, c := range map[string]struct {
			change string // of the rows that the statement inserts
			class  error
		}{
			"an added row comes with its name and key":   {"IF NEW.limiter = 'u' THEN NEW.limiter := 'test'; ELSIF NEW.key = 'a' THEN NEW.key := 'b'; ELSE NEW.limiter := 'u'; NEW.key := 'a'; END IF;", nil},
			"a row of another key is an error":           {"NEW.key := 'z';", limiter.ErrOutcomeUnknown},
			"rows before a late error count for nothing": {"", limiter.ErrInvalid},
		} {
			t.Run(name, func(t *testing.T) {
				schema := d.schema(t)
				d.trigger(t, schema, "change", "BEFORE INSERT", c.change+" RETURN NEW;")
				if c.change == "" { // the commit finds two equal rows
					d.exec(t, "ALTER TABLE "+schema+".limiter_token_buckets ADD UNIQUE (granted) DEFERRABLE INITIALLY DEFERRED")
				}
				third := take(slow(4), "a", 3)
				third.Name = "u"
				states, err := postgres.TakeMerged(bounded(t), d.store(t, schema, nil), take(slow(4), "a", 1), take(slow(4), "b", 2), third)
				if c.class != nil {
					wantError(t, err, c.class)
				} else {
					must(t, err)
				}
				for i, s := range states {
					if s.Took != (err == nil) || s.Took && s.Row.FullAt != s.Row.At+[]int64{3, 1, 2}[i]*int64(time.Hour) {
						t.Errorf("take %d: %+v", i, s)
					}
				}
			})
		}
		t.Run("AllowUpTo and Charge of other keys share statements", func(t *testing.T) {
			store := storeOn(t, mode(pgx.QueryExecModeExec)(t, d.dsn), d.schema(t))
			l, err := limiter.New(store, "NULL", slow(4), limiter.WithTimeout(testTimeout)) // as text, an array quotes it
			must(t, err)
			each(64, func(i int) {
				for n := range 8 {
					call := l.AllowUpTo
					if i%2 == 0 {
						call = l.Charge
					}
					if res, err := call(t.Context(), fmt.Sprint(i, " ", n), 3); err != nil || res.Taken != 3 {
						t.Errorf("%+v, %v; want 3 taken", res, err)
					}
				}
			})
			if s := store.Stats(); s.Units != 64*8 || s.Statements > s.Units/4 {
				t.Errorf("%d statements for %d operations", s.Statements, s.Units)
			}
		})
	})
}

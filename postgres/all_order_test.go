package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// allPaths are the ways in which a store decides over several limits.
var allPaths = []struct {
	name string
	of   func(s *postgres.Store) limiter.AllStore
}{
	{"by one statement", func(s *postgres.Store) limiter.AllStore { return s }},
	{"in a transaction", func(s *postgres.Store) limiter.AllStore { return postgres.SettledAll{Store: s} }},
}

// allPairs are pairs of takes in the order in which their rows are locked.
var allPairs = map[string][2]limiter.Op{
	"two buckets":            {take(slow(5), "a", 2), take(slow(5), "b", 2)},
	"two windows":            {take(long(5), "a", 2), take(long(5), "b", 2)},
	"a bucket and a window":  {take(slow(5), "k", 2), take(long(5), "k", 2)},
	"a window behind bucket": {take(slow(5), "z", 2), take(long(5), "a", 2)},
}

// onPairs runs a test for each pair on each path.
func onPairs(t *testing.T, run func(t *testing.T, d *database, schema string, store limiter.AllStore, pair [2]limiter.Op)) {
	t.Helper()
	onPostgres(t, func(t *testing.T, d *database) {
		for _, path := range allPaths {
			for name, pair := range allPairs {
				t.Run(path.name+", "+name, func(t *testing.T) {
					schema := d.schema(t)
					run(t, d, schema, path.of(d.store(t, schema, nil)), pair)
				})
			}
		}
	})
}

// freeRow is how long a take waits at most for a row that nobody should have locked.
const freeRow = 3 * time.Second

// prober returns a function that reports whether nobody has locked the row of op at this moment, nor
// added it without a commit. A statement on a pool holds its rows for 20 ms at most.
func (d *database) prober(t *testing.T, schema string, op limiter.Op) (free func() bool) {
	t.Helper()
	tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
	must(t, testenv.ErrorOf(tx.Exec(t.Context(), "SET LOCAL lock_timeout = '2ms'")))
	store := storeOn(t, tx, schema)
	return func() bool {
		_, err := store.Do(bounded(t), op)
		end(t, tx, false)
		return err == nil
	}
}

// doAll decides over several limits, named in an order that is not that of their locks.
func doAll(t *testing.T, store limiter.AllStore, ops ...limiter.Op) (states []limiter.State, took bool) {
	t.Helper()
	for i := range ops {
		ops[i].Timeout = testTimeout
	}
	slices.SortFunc(ops, func(a, b limiter.Op) int { return a.Compare(&b) })
	states, err := store.DoAll(bounded(t), ops)
	if err != nil {
		t.Errorf("DoAll(%+v): %v", ops, err) // a goroutine may call
	}
	return states, err == nil && !slices.ContainsFunc(states, func(s limiter.State) bool { return !s.Took })
}

// rowOf is SQL that finds the row of op.
func rowOf(schema string, op limiter.Op) string {
	table := rowtest.SQL{Schema: schema}.Name(rowtest.TableOf(op.Policy))
	return fmt.Sprintf("%s WHERE limiter = '%s' AND key = '%s'", table, op.Name, op.Key)
}

// A decision that waits for its first row holds no later one. If rows are missing, it adds them in that order.
func TestAllLocksInOrder(t *testing.T) {
	onPairs(t, func(t *testing.T, d *database, schema string, store limiter.AllStore, pair [2]limiter.Op) {
		other := d.store(t, schema, nil)
		for _, missing := range []bool{true, false} {
			d.exec(t, "TRUNCATE "+allTables(schema))
			tx, queue := begin(t, connect(t, d.dsn), pgx.ReadCommitted), func() {}
			if !missing {
				do(t, other, pair[0])
				do(t, other, pair[1])
				must(t, testenv.ErrorOf(tx.Exec(t.Context(), "SELECT FROM "+rowOf(schema, pair[0])+" FOR UPDATE")))
				if _, queues := store.(*postgres.Store); queues {
					leave := d.holdLock(t, queueOf(schema, pair[0]))
					queue = func() { d.blocked(t, 1); leave() }
				}
			} else {
				do(t, storeOn(t, tx, schema), pair[0])
			}
			free := d.prober(t, schema, pair[1])
			done := make(chan bool)
			go func() {
				_, took := doAll(t, store, pair[1], pair[0])
				done <- took
			}()
			d.blocked(t, 1)
			testenv.Equal(t, free(), true, "it holds no second row while it waits for the first one")
			second := pair[1]
			second.Cost, second.Timeout = 1, freeRow
			testenv.Equal(t, do(t, other, second).Took, true, "another take got the second row")
			end(t, tx, true)
			queue()
			testenv.Equal(t, <-done, true, "it took, as 3 and 2 or more of 5 were left")
			wantLeft(t, other, pair[0], 1, "the first row")
			wantLeft(t, other, pair[1], map[bool]int64{true: 2}[missing], "the second row")
		}
	})
}

// A decision waits in the queues of several rows only if it could lock each of them before.
func TestQueuesOfAll(t *testing.T) {
	join := postgres.Joining()
	for i, want := range [][]int{{0, 0}, {2, 2}, {2, 0, 2}, {1, 1}, {1, 0, 1, 2}} { // the first row, and the queues
		if got := join([]int{0, 2, 0, 1, 2}[i]); !slices.Equal(got, want) {
			t.Errorf("try %d: %v, want %v", i, got, want)
		}
	}
}

// While a decision waits for a row, another process takes from it: as much as leaves room, or more.
func TestAllCountsWhatWasTaken(t *testing.T) {
	onPairs(t, func(t *testing.T, d *database, schema string, store limiter.AllStore, pair [2]limiter.Op) {
		other := d.store(t, schema, few(1))
		for i := range pair {
			for _, cost := range []int64{2, 3} {
				ops := pair
				for j := range ops {
					ops[j].Name = fmt.Sprint("l", i, cost)
					first := ops[j]
					first.Cost = 1
					do(t, other, first)
				}
				tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
				meanwhile := ops[i]
				meanwhile.Cost = cost
				do(t, storeOn(t, tx, schema), meanwhile)
				done := make(chan bool)
				go func() {
					states, took := doAll(t, store, ops[:]...)
					if want := cost <= 2; states[i].Took != want || !states[1-i].Took {
						t.Errorf("row %d, %d taken meanwhile: %+v", i, cost, states)
					}
					done <- took
				}()
				d.blocked(t, 1)
				<-time.After(50 * time.Millisecond) // then it waits for the row alone, unless the machine is slow
				end(t, tx, true)
				took, left := <-done, [2]int64{4, 4}
				left[i] -= cost
				for j, op := range ops {
					if took {
						left[j] -= 2
					}
					wantLeft(t, other, op, left[j], fmt.Sprintf("row %d, %d taken from row %d meanwhile", j, cost, i))
				}
			}
		}
	})
}

// A clock that was read before the lock would let a row's clock go back, and could refuse what has
// refilled since.
func TestAllReadsTheClockLast(t *testing.T) {
	onPairs(t, func(t *testing.T, d *database, schema string, store limiter.AllStore, pair [2]limiter.Op) {
		for i := range pair {
			pair[i].Cost = 1
			do(t, d.store(t, schema, few(1)), pair[i])
		}
		for _, locked := range pair {
			release := d.holdLock(t, "SELECT FROM "+rowOf(schema, locked)+" FOR UPDATE")
			done := make(chan []limiter.State)
			go func() {
				states, _ := doAll(t, store, pair[0], pair[1])
				done <- states
			}()
			d.blocked(t, 1)
			clock := query[int64](t, d, "SELECT "+serverClock)
			release()
			for i, s := range <-done {
				if !s.Took || s.Now < clock || s.Row.At < clock {
					t.Errorf("take %d: %+v, want it by a clock after %d", i, s, clock)
				}
			}
			for _, op := range pair {
				if at := query[int64](t, d, "SELECT at FROM "+rowOf(schema, op)); at < clock {
					t.Errorf("the row has %d, want at least %d", at, clock)
				}
			}
		}
	})
}

// The decision has read a row that has room, and waits for its lock. Meanwhile another process writes the row
// with another policy, or by a clock that is ahead.
func TestAllSeesChangesUnderTheLock(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for kind, policies := range map[string][]limiter.Policy{
			"bucket": {slow(5), slow(6), limiter.TokenBucket{Capacity: 5, Refill: 2, Interval: time.Hour}},
			"window": {long(5), long(6), limiter.FixedWindow{Limit: 5, Window: 131_490 * time.Hour}},
		} {
			for change, policy := range map[string]limiter.Policy{"another limit": policies[1], "another period": policies[2], "a clock ahead": policies[0]} {
				t.Run(kind+", "+change, func(t *testing.T) {
					schema := d.schema(t)
					store := d.store(t, schema, nil)
					ops := []limiter.Op{take(policies[0], "a", 1), take(policies[0], "b", 1)} // by any of the policies they fit
					for _, op := range ops {
						do(t, store, op)
					}
					tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
					do(t, storeOn(t, tx, schema), take(policy, "a", 1))
					if policy == policies[0] {
						must(t, testenv.ErrorOf(tx.Exec(t.Context(), "UPDATE "+schema+"."+rowtest.TableOf(policy).Name+" SET at = at + 3600000000000 WHERE key = 'a'")))
					}
					changed, other := rows{tx.Conn(), schema}.Read(t, ops[0]), rows{tx.Conn(), schema}.Read(t, ops[1])
					var states []limiter.State
					var err error
					var decision sync.WaitGroup
					decision.Go(func() { states, err = store.DoAll(bounded(t), ops) }) // without a time limit it waits as long as needed
					d.blocked(t, 1)
					end(t, tx, true)
					decision.Wait()
					must(t, err)
					want, _ := limiter.ApplyAll(ops, []limiter.Row{changed, other}, states[0].Now)
					if got := (rows{connect(t, d.dsn), schema}).Read(t, ops[0]); got != want[0] {
						t.Errorf("the row was\n%+v and is\n%+v, want\n%+v", changed, got, want[0])
					}
				})
			}
		}
	})
}

var _ limiter.AllStore = (*postgres.Store)(nil)

// four are takes from four rows, two of each table.
func four(cost int64) []limiter.Op {
	return []limiter.Op{take(slow(5), "a", cost), take(slow(5), "b", cost), take(long(5), "a", cost), take(long(5), "b", cost)}
}

// oneOfAll is a Store that carries out an operation as a decision over several limits.
type oneOfAll struct{ limiter.AllStore }

func (s oneOfAll) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	states, err := s.DoAll(ctx, []limiter.Op{op})
	return append(states, limiter.State{})[0], err
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
		added := query[int](t, d, fmt.Sprintf("SELECT count(*) FROM %s.limiter_fixed_windows WHERE key IN ('c', 'd')", schema))
		testenv.Equal(t, added, 0, "rows that a refusal added")
		r.fails = func(string) bool { return true }
		wantError(t, testenv.ErrorOf(store.DoAll(bounded(t), four(1))), limiter.ErrNotApplied)
	})
}

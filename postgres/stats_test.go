package postgres_test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/testenv"
)

// stats are counts of a store.
func stats(statements, rows, units, secondLooks int64) limiter.StoreStats {
	return limiter.StoreStats{Statements: statements, Rows: rows, Units: units, SecondLooks: secondLooks}
}

func TestStats(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		op := func(kind limiter.OpKind, cost int64) limiter.Op {
			op := take(slow(5), "a", cost)
			op.Kind = kind
			return op
		}
		var others []limiter.Op
		for _, kind := range []limiter.OpKind{limiter.OpLook, limiter.OpTakeUpTo, limiter.OpCharge, limiter.OpRefund, limiter.OpBlock, limiter.OpReset} {
			others = append(others, op(kind, 3))
		}
		// While a process's clock is in the period, a statement decides alone.
		lastYear := []limiter.Op{take(limiter.CalendarWindow{Limit: 9, Period: limiter.Year}, "a", 1)}
		ofYear := slices.Repeat(lastYear, 3)
		ofYear[1].Kind, ofYear[2].Kind = limiter.OpTakeUpTo, limiter.OpCharge
		lastYear[0].At = time.Now().AddDate(-1, 0, 0).UnixNano()
		for _, c := range []struct {
			name        string
			before, ops []limiter.Op // of another process; of the store
			all         bool         // the ops are one decision
			want        limiter.StoreStats
		}{
			{"nothing", nil, nil, false, stats(0, 0, 0, 0)},
			{"a single take", nil, []limiter.Op{op(limiter.OpTake, 1)}, false, stats(1, 1, 1, 0)},
			{"one operation of each other kind", nil, others, false, stats(6, 6, 6, 0)},
			{"from a row of another policy", []limiter.Op{take(slow(7), "a", 1)}, []limiter.Op{op(limiter.OpTake, 1)}, false, stats(1, 1, 1, 1)},
			{"an earlier year", lastYear, ofYear, false, stats(3, 3, 3, 0)},
			{"an earlier year, at once", lastYear, ofYear[:1], true, stats(1, 1, 1, 0)},
			{"four limits at once", four(1), four(1), true, stats(1, 4, 4, 0)},
			{"four limits whose rows are missing", nil, four(1), true, stats(1, 4, 4, 4)},
		} {
			for _, way := range []string{"in the queue", "without a time limit", "on a connection"} {
				schema, ops := d.schema(t), slices.Clone(c.ops)
				store := d.store(t, schema, nil)
				if way == "on a connection" {
					store = storeOn(t, connect(t, d.dsn), schema)
				}
				for i := range ops {
					if way == "in the queue" {
						ops[i].Timeout = testTimeout
					}
				}
				for _, op := range c.before {
					do(t, d.store(t, schema, few(1)), op)
				}
				if c.all {
					must(t, testenv.ErrorOf(store.DoAll(bounded(t), ops)))
				} else {
					for _, op := range ops {
						do(t, store, op)
					}
				}
				testenv.Equal(t, store.Stats(), c.want, c.name, way)
			}
		}
	})
}

// A take that is not granted beside others is refused at once. If takes were sent again, a busy key would refuse none.
func TestRefusedBesideGranted(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		p := pool(t, d.dsn, few(4))
		store := storeOn(t, p, schema)
		for kind, lasting := range rowtest.Lasting {
			op, before, release := take(lasting(5), kind, 1), store.Stats(), useUp(t, p, 4)
			op.Timeout = testTimeout
			var all sync.WaitGroup
			var refused atomic.Int64
			for range 12 {
				all.Go(func() {
					if s := do(t, store, op); !s.Took && s.Tick == 1000 {
						refused.Add(1)
					}
				})
			}
			waitFor(t, "all wait", func() bool { return store.Stats().Queued == 12 })
			release()
			all.Wait()
			testenv.Equal(t, [3]int64{refused.Load(), store.Stats().Statements - before.Statements, store.Stats().SecondLooks - before.SecondLooks},
				[3]int64{7, 2, 0}, "refusals, statements and second looks of a", kind)
		}
	})
}

func TestStatsOfALockedRow(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		r := newTracer(false)
		store := d.store(t, schema, r.in)
		op := take(slow(100), "held", 1)
		for _, op := range append(four(1), op) {
			do(t, d.store(t, schema, few(1)), op)
		}
		release := d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets FOR UPDATE")
		const callers = 12
		var all sync.WaitGroup
		op.Timeout = testTimeout
		for range callers {
			all.Go(func() { do(t, store, op) })
		}
		for range 2 {
			all.Go(func() { doAll(t, store, four(1)...) })
		}
		// One take of the key and the first row of one of the decisions wait for their locks, and are not queued.
		waitFor(t, "all others are queued", func() bool { return store.Stats().Queued == callers-1+1 })
		all.Go(func() { doAll(t, store, four(1)...) })
		waitFor(t, "a third decision is queued", func() bool { return store.Stats().Queued == callers+1 })
		release()
		all.Wait()
		// A statement that waits too long for its lock is sent again, so what was sent says what to count.
		sent := slices.DeleteFunc(r.take(), func(name string) bool { return name == "bucketRead" || strings.HasSuffix(name, "KeyLock") })
		if got := store.Stats(); got.Statements != int64(len(sent)) || got.Queued != 0 {
			t.Errorf("%+v for the statements %v", got, sent)
		}
	})
}

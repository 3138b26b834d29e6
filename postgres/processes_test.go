package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/witness"
	"github.com/sqlimit/limiter/postgres"
)

// mixture are the limiters that the processes share, all on one store.
var mixture = []struct {
	name     string
	policy   limiter.Policy
	keys     int
	most     int64 // the highest cost
	refunded bool  // half of what is granted is given back
}{
	{name: "hot bucket", policy: limiter.TokenBucket{Capacity: 40, Refill: 1, Interval: time.Millisecond}, keys: 1, most: 40},
	{name: "hot window", policy: limiter.FixedWindow{Limit: 60, Window: 50 * time.Millisecond}, keys: 1, most: 60},
	{name: "warm", policy: limiter.TokenBucket{Capacity: 9, Refill: 1, Interval: 5 * time.Millisecond}, keys: 12, most: 9},
	{name: "warm", policy: limiter.FixedWindow{Limit: 9, Window: 40 * time.Millisecond}, keys: 12, most: 9},
	{name: "cold", policy: slow(3), keys: 400, most: 3},
	{name: "cold", policy: long(3), keys: 400, most: 3},
	{name: "refunded", policy: slow(30), keys: 3, most: 4, refunded: true},
	{name: "refunded", policy: long(30), keys: 3, most: 4, refunded: true},
}

const (
	callersOfAProcess = 48
	callsOfACaller    = 120
)

// callers take, look and give back as in a process of some application: a third of
// them all want the same two keys, and the others' keys are mixed. Cold keys come in
// the same order in all processes, so that they meet at each.
func callers(ctx context.Context, store *postgres.Store, process *worker, report *report) error {
	r := newScribe(store)
	var cold atomic.Int64
	var failed atomic.Pointer[error]
	each(callersOfAProcess, func(caller int) {
		rnd := rand.New(rand.NewPCG(uint64(caller), uint64(process.Number)))
		for range callsOfACaller {
			n := 2 + rnd.IntN(len(mixture)-2)
			if caller%3 == 0 {
				n = caller % 2
			}
			m := mixture[n]
			key := fmt.Sprint("key ", rnd.IntN(m.keys))
			if m.name == "cold" {
				key = fmt.Sprint("key ", int(cold.Add(1)/6)%m.keys)
			}
			if err := r.call(ctx, rnd, n, key); err != nil {
				failed.Store(&err)
				return
			}
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	report.Records = r.records
	return nil
}

// call takes, or now and then looks. Most takes cost 1, as those that are alike go out
// as one.
func (r *scribe) call(ctx context.Context, rnd *rand.Rand, n int, key string) error {
	if rnd.IntN(20) == 0 {
		_, err := r.do(ctx, limiter.OpLook, n, key, 0)
		return err
	}
	cost := int64(1)
	if rnd.IntN(8) == 0 {
		cost += rnd.Int64N(mixture[n].most)
	}
	s, err := r.do(ctx, limiter.OpTake, n, key, cost)
	if err == nil && s.Took && mixture[n].refunded && rnd.IntN(2) == 0 {
		_, err = r.do(ctx, limiter.OpRefund, n, key, cost)
	}
	return err
}

func TestTakesOfTwoProcessesAreThoseOfASequentialRun(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, few(1))
		opened := map[limiter.Op]limiter.Row{}
		for n, m := range mixture {
			for i := range m.keys {
				if m.refunded {
					op := record{Limiter: n, Key: fmt.Sprint("key ", i), Kind: limiter.OpTake, Cost: 1}.op()
					opened[keyOf(op)] = do(t, store, op).Row
				}
			}
		}
		histories := map[limiter.Op][]witness.Call{}
		var asked, statements int64
		for _, report := range processes(t, worker{Job: "callers", DSN: d.dsn, Schema: schema, Conns: 8}, 2) {
			statements += report.Statements
			for _, c := range report.Records {
				op := c.op()
				histories[keyOf(op)] = append(histories[keyOf(op)], witness.Call{Op: op, State: c.State, Began: c.Began, Ended: c.Ended})
				asked++
			}
		}
		left := rows{connect(t, d.dsn), schema}
		for key, calls := range histories {
			var err error
			if row, ok := opened[key]; ok {
				err = witness.CheckGivenBack(calls, row, left.Read(t, key))
			} else {
				err = witness.Check(calls, left.Read(t, key))
			}
			if err != nil {
				t.Errorf("%s of the %T %q: %v", key.Key, key.Policy, key.Name, err)
			}
		}
		wentTogether(t, asked, statements, histories)
	})
}

// keyOf is what all operations on a key have in common.
func keyOf(op limiter.Op) limiter.Op {
	return limiter.Op{Name: op.Name, Key: op.Key, Policy: op.Policy}
}

// wentTogether fails the test unless calls did go out together: several keys in a statement,
// which makes fewer statements than calls, and several takes of a key, which then have one
// clock reading. (Grants in a window may have one without that: that of the row.)
func wentTogether(t *testing.T, calls, statements int64, histories map[limiter.Op][]witness.Call) {
	t.Helper()
	granted, alike := 0, 0
	for key, calls := range histories {
		if _, ok := key.Policy.(limiter.TokenBucket); !ok {
			continue
		}
		readings := map[int64]int{}
		for _, c := range calls {
			if c.Op.Kind == limiter.OpTake && c.State.Took {
				granted++
				readings[c.State.Now]++
			}
		}
		for _, n := range readings {
			alike += n - 1
		}
	}
	t.Logf("%d calls in %d statements on %d keys; of %d grants of buckets %d with another of their key", calls, statements, len(histories), granted, alike)
	if statements*2 > calls || alike*10 < granted {
		t.Errorf("%d calls in %d statements, and of %d grants of buckets %d with another of their key: they did not go out together", calls, statements, granted, alike)
	}
}

package sqlite_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestStats(t *testing.T) {
	t.Parallel()
	op := func(kind limiter.OpKind, cost int64) limiter.Op {
		op := takeOf("l", "a", slow, cost)
		op.Kind = kind
		return op
	}
	for pool, open := range openers {
		for _, c := range []struct {
			name string
			ops  []limiter.Op
			all  bool // the last two at once
			want limiter.StoreStats
		}{
			{
				"one operation of each other kind, and a refusal",
				[]limiter.Op{op(limiter.OpLook, 1), op(limiter.OpTakeUpTo, 50), op(limiter.OpTake, 1), op(limiter.OpCharge, 1), op(limiter.OpRefund, 1), op(limiter.OpBlock, 1), op(limiter.OpReset, 1)},
				false,
				limiter.StoreStats{Statements: 7, Rows: 7, Units: 7},
			},
			{
				"a take from a row of another policy",
				[]limiter.Op{op(limiter.OpTake, 1), takeOf("l", "a", limiter.TokenBucket{Capacity: 7, Refill: 1, Interval: time.Hour}, 1)},
				false,
				limiter.StoreStats{Statements: 2, Rows: 2, Units: 2, SecondLooks: 1},
			},
			{"two limits at once", []limiter.Op{op(limiter.OpTake, 1), takeOf("l", "a", window, 1)}, true, limiter.StoreStats{Statements: 1, Rows: 2, Units: 2}},
		} {
			store := open(t)
			for n := range slices.Chunk(c.ops, map[bool]int{true: 2, false: 1}[c.all]) {
				must(t, testenv.ErrorOf(doAll(t.Context(), store, n)))
			}
			testenv.Equal(t, store.Stats(), c.want, pool, c.name)
		}
	}
}

func TestStatsOfTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, full := openFile(t), request(0, 2)
		full[0].Cost, full[1].Cost = 50, 50
		must(t, testenv.ErrorOf(store.DoAll(t.Context(), full)))
		_, unlock := lock(t, store)
		const callers = 12
		var all sync.WaitGroup
		for i := range int64(callers) { // the first one waits for the lock, and the others for it
			all.Go(func() { must(t, testenv.ErrorOf(store.Do(t.Context(), takeOf("l", "hot", slow, 1)))) })
			synctest.Wait()
			testenv.Equal(t, store.Stats().Queued, i, "queued")
		}
		endless := request(2, 1) // it has no time limit
		endless[0].Timeout = 0
		ctx, leave := context.WithCancel(t.Context())
		for queued, ops := range map[int64][]limiter.Op{2: request(1, 2), 1: endless} {
			before := store.Stats().Queued
			all.Go(func() { must(t, testenv.ErrorOf(doAll(t.Context(), store, ops))) })
			all.Go(func() { testenv.ErrorIs(t, testenv.ErrorOf(doAll(ctx, store, ops)), limiter.ErrCanceled) })
			synctest.Wait()
			testenv.Equal(t, store.Stats().Queued, before+2*queued, "queued")
		}
		leave()
		synctest.Wait()
		must(t, testenv.ErrorOf(store.DoAll(t.Context(), full))) // a refusal waits for nobody
		unlock()
		all.Wait()
		// The second caller waits alone. Those behind it share a transaction.
		want := limiter.StoreStats{Statements: 7, Rows: 10, Units: callers + 7}
		testenv.Equal(t, store.Stats(), want)
		look := takeOf("l", "hot", limiter.TokenBucket{Capacity: 40, Refill: 1, Interval: time.Hour}, 40)
		look.Kind = limiter.OpLook
		must(t, testenv.ErrorOf(store.Do(t.Context(), look)))
		testenv.Equal(t, read(t, store, look).Limit, 40, "the limit in the row after a look with another policy")
	})
}

// The breaker opens for the row on which a decision failed.
func TestBreakerOfSeveralLimits(t *testing.T) {
	t.Parallel()
	for i, fault := range []string{
		"CREATE TRIGGER fails BEFORE INSERT ON limiter_token_buckets BEGIN INSERT INTO missing VALUES (1); END",
		"DROP TABLE limiter_fixed_windows",
	} {
		store, ops := openFile(t), request(1, 2)
		execute(t, store, fault)
		for range 5 {
			testenv.ErrorIs(t, testenv.ErrorOf(store.DoAll(t.Context(), ops)), limiter.ErrMisconfigured, fault)
		}
		for _, blocked := range [][]limiter.Op{ops, ops[i : i+1]} {
			testenv.Contains(t, fmt.Sprint(fault, ": ", testenv.ErrorOf(doAll(t.Context(), store, blocked))), "not sent")
		}
		testenv.Equal(t, store.Stats(), limiter.StoreStats{Statements: 5, Rows: 10, Units: 10, BreakerOpen: true, BreakerOpenings: 1})
		must(t, testenv.ErrorOf(store.Do(t.Context(), ops[1-i])))
	}
}

package sqlite_test

import (
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
		store := openFile(t)
		_, unlock := lock(t, store)
		const callers = 12
		var all sync.WaitGroup
		for i := range int64(callers) { // the first one waits for the lock, and the others for it
			all.Go(func() { must(t, testenv.ErrorOf(store.Do(t.Context(), takeOf("l", "hot", slow, 1)))) })
			if synctest.Wait(); store.Stats().Queued != i {
				t.Errorf("%+v with %d callers, want %d queued", store.Stats(), i+1, i)
			}
		}
		all.Go(func() { must(t, testenv.ErrorOf(store.DoAll(t.Context(), request(1, 2)))) })
		if synctest.Wait(); store.Stats().Queued != callers+1 {
			t.Errorf("%+v with a request of two limits, want %d queued", store.Stats(), callers+1)
		}
		unlock()
		all.Wait()
		// The second caller waits for the writer alone, those behind it share a transaction.
		want := limiter.StoreStats{Statements: 4, Rows: 5, Units: callers + 2}
		testenv.Equal(t, store.Stats(), want)
	})
}

func TestStatsOfTheBreaker(t *testing.T) {
	t.Parallel()
	p := newFaulty(t, openPath)
	must(t, p.takes("a"))
	damages(garbage(0))(p)
	for n := range 6 {
		if p.takes(string(rune('a'+n))) == nil {
			t.Error("a take from a damaged file succeeded")
		}
	}
	got := p.store.Stats()
	if got.BreakerOpenings != 1 || !got.BreakerOpen || got.ConnectionsLost < 1 || got.Statements > 6 || got.Retries != 0 {
		t.Errorf("%+v after 6 takes from a damaged file; want the breaker opened once, and a connection lost", got)
	}
}

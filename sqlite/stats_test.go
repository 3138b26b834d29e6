package sqlite_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
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
			{"nothing", nil, false, limiter.StoreStats{}},
			{"a single take", []limiter.Op{op(limiter.OpTake, 1)}, false, limiter.StoreStats{Statements: 1, Rows: 1, Units: 1}},
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
			{
				"two limits at once",
				[]limiter.Op{op(limiter.OpTake, 1), takeOf("l", "a", window, 1)},
				true,
				limiter.StoreStats{Statements: 1, Rows: 2, Units: 2},
			},
		} {
			store := open(t)
			for n := range slices.Chunk(c.ops, map[bool]int{true: 2, false: 1}[c.all]) {
				_, err := doAll(t.Context(), store, n)
				must(t, err)
			}
			if got := store.Stats(); got != c.want {
				t.Errorf("%s, %s: %+v, want %+v", pool, c.name, got, c.want)
			}
		}
	}
}

func TestStatsOfTheQueue(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	_, unlock := lock(t, store)
	const callers = 12
	var all sync.WaitGroup
	start := func(ready func(limiter.StoreStats) bool, do func() error) {
		all.Go(func() { must(t, do()) })
		waitForStats(t, store, ready)
	}
	doOne := func() error {
		_, err := store.Do(t.Context(), takeOf("l", "hot", slow, 1))
		return err
	}
	start(func(s limiter.StoreStats) bool { return s.Statements == 1 }, doOne) // this one waits for the lock
	for i := range int64(callers - 1) {
		start(func(s limiter.StoreStats) bool { return s.Queued == i+1 }, doOne)
	}
	start(func(s limiter.StoreStats) bool { return s.Queued == callers+1 }, func() error {
		_, err := store.DoAll(t.Context(), []limiter.Op{takeOf("l", "a", slow, 1), takeOf("l", "b", slow, 1)})
		return err
	})
	unlock()
	all.Wait()
	// The second caller waits for the writer alone, those behind it share a transaction.
	want := limiter.StoreStats{Statements: 4, Rows: 5, Units: callers + 2}
	if got := store.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// waitForStats waits until the statistics of a store are as they should be.
func waitForStats(t *testing.T, store *sqlite.Store, ready func(limiter.StoreStats) bool) {
	t.Helper()
	for deadline := time.After(30 * time.Second); !ready(store.Stats()); {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("%+v", store.Stats())
		}
	}
}

func TestStatsOfTheBreaker(t *testing.T) {
	t.Parallel()
	p := newFaulty(t, openPath)
	must(t, p.takes("a"))
	damage(p, garbage(0))
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

package sqlite_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

// Close leaves no outcome unknown: the rows have what was granted, and nothing else.
func TestCloseUnderTraffic(t *testing.T) {
	t.Parallel()
	endless := limiter.TokenBucket{Capacity: 1 << 30, Refill: 1, Interval: time.Second}
	test := func(t *testing.T, store *sqlite.Store) {
		t.Parallel()
		reader := openOnly(t, fileOf(t, store))
		ops := []limiter.Op{takeOf("l", "hot", endless, 1), takeOf("m", "hot", endless, 3)}
		for i := range 14 {
			ops = append(ops, takeOf("l", fmt.Sprint(i), endless, 2))
		}
		granted := make([]int64, len(ops))
		var mu sync.Mutex
		var all, warm sync.WaitGroup
		for w := range 32 {
			warm.Add(1)
			arrived := sync.OnceFunc(warm.Done)
			all.Go(func() {
				defer arrived()
				for i := w; ; i++ {
					s, err := store.Do(t.Context(), ops[i%len(ops)])
					if err != nil {
						if !errors.Is(err, limiter.ErrNotApplied) || errors.Is(err, limiter.ErrOutcomeUnknown) {
							t.Errorf("a take that Close met: %v, want ErrNotApplied", err)
						}
						return
					}
					if !s.Took {
						t.Errorf("a take was refused: %+v", s)
					}
					mu.Lock()
					granted[i%len(ops)]++
					mu.Unlock()
					if i == w+10 {
						arrived()
					}
				}
			})
		}
		warm.Wait()
		must(t, store.Close())
		all.Wait()
		for i, op := range ops {
			if got, want := used(read(t, reader, op), op), granted[i]*op.Cost; got != want {
				t.Errorf("%s %s: %d were charged, want %d", op.Name, op.Key, got, want)
			}
		}
	}
	for _, name := range []string{"file", "own pool"} { // the rows in memory go with the Store
		t.Run(name, func(t *testing.T) { test(t, openers[name](t)) })
	}
}

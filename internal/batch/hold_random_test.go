package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// Callers hold several keys, in order, beside takes that share statements, callers who leave and
// statements that fail. A held key is in no statement, and in the end every queue is empty.
//
// If the time of a caller ends, its key is busy or the store answered others while it waited for this
// key or one before. Otherwise a statement has failed meanwhile.
func TestHeldKeysAreInNoStatement(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		var mu sync.Mutex
		held := map[string]bool{}
		failed := 0
		s.before = func(_ context.Context, groups []*batch.Group) error {
			mu.Lock()
			defer mu.Unlock()
			for _, g := range groups {
				if held[g.Op().Key] {
					t.Errorf("seed %d: a statement has a key that is held", seed)
				}
			}
			if len(groups) > 2 {
				failed++
				return limiter.ErrNotApplied
			}
			return nil
		}
		several := func(ctx context.Context, keys []int, last time.Duration) {
			limited := new(opcontext.Deadlines).WithTimeout(ctx, timeout)
			defer opcontext.Stop(limited)
			mu.Lock()
			before := failed
			mu.Unlock()
			ops, queues := make([]limiter.Op, len(keys)), make([]*batch.Queue, len(keys))
			for i, k := range keys {
				ops[i], queues[i] = take(fmt.Sprint(k), 1), q.Queue
			}
			h, err := batch.HoldAll(limited, queues, ops)
			defer func() { h.End(err == nil, err) }()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				busy := errors.Is(err, limiter.ErrKeyBusy) || h.Waited() || failed > before
				if ctx.Err() == nil && (!busy || !errors.Is(err, limiter.ErrNotApplied)) {
					t.Errorf("seed %d: %v", seed, err)
				}
				return
			}
			for _, op := range ops {
				if held[op.Key] {
					t.Errorf("seed %d: two hold a key", seed)
				}
				held[op.Key] = true
			}
			mu.Unlock()
			<-time.After(last)
			mu.Lock()
			for _, op := range ops {
				held[op.Key] = false
			}
		}
		var all sync.WaitGroup
		for range 400 {
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			keys := r.Perm(6)[:1+r.IntN(4)]
			slices.Sort(keys)
			pause := time.Duration(r.IntN(10)) * ms
			if r.IntN(2) == 0 {
				all.Go(func() { several(ctx, keys, pause) })
			} else {
				op := take(fmt.Sprint(keys[0]), 1+r.Int64N(2))
				op.Timeout = time.Minute
				limited := new(opcontext.Deadlines).WithTimeout(ctx, op.Timeout)
				all.Go(func() {
					defer opcontext.Stop(limited)
					if _, err := q.Do(limited, op); err != nil && ctx.Err() == nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				})
			}
			if r.IntN(5) == 0 {
				cancel()
			}
			if r.IntN(3) == 0 {
				<-time.After(time.Duration(r.IntN(8)) * ms)
			}
		}
		all.Wait()
		<-time.After(time.Second)
		if n := q.Keys(); n != 0 {
			t.Errorf("seed %d: %d key queues are left", seed, n)
		}
	})
}

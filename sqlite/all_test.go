package sqlite_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

// limits returns n limiters in both tables. The limit of the i-th is limit(i).
func limits(t testing.TB, store *sqlite.Store, n int, limit func(i int) int64, opts ...limiter.Option) (ls []*limiter.Limiter) {
	t.Helper()
	for i := range n {
		var p limiter.Policy = limiter.TokenBucket{Capacity: limit(i), Refill: 1, Interval: time.Second}
		if i%2 == 1 {
			p = limiter.FixedWindow{Limit: limit(i), Window: 24 * time.Hour}
		}
		ls = append(ls, newLimiter(t, store, fmt.Sprint("l", i), p, append([]limiter.Option{at(t0)}, opts...)...))
	}
	return ls
}

func claims(key string, ls ...*limiter.Limiter) (claims []limiter.Claim) {
	for _, l := range ls {
		claims = append(claims, limiter.Claim{Limiter: l, Key: key})
	}
	return claims
}

// taken is how much was taken of a key.
func taken(t *testing.T, l *limiter.Limiter, key string) int64 {
	t.Helper()
	r, err := l.Peek(t.Context(), key)
	must(t, err)
	return r.Limit - r.Remaining
}

// Two limits are always taken together. Each of a refusal by a third limit must say so, also if a
// snapshot refuses because others write.
func TestRefusalTellsOfOneInstant(t *testing.T) {
	skipShort(t, "it needs traffic")
	t.Parallel()
	ls := limits(t, openFile(t), 3, func(i int) int64 { return []int64{1_000_000, 1_000_000, 1}[i] })
	allow(t, ls[2], "k")
	var ended atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !ended.Load() {
				if res, err := limiter.AllowAll(t.Context(), claims("k", ls[0], ls[1])...); err != nil || !res.Allowed {
					t.Errorf("AllowAll = %+v, %v; want it allowed", res, err)
					return
				}
			}
		})
	}
	// Refusals are faster than charges: only a count of changes tells that both ran at once.
	changes, last := 0, int64(0)
	for changes < 100 && !t.Failed() {
		res, err := limiter.AllowAll(t.Context(), claims("k", ls...)...)
		if err != nil || res.Allowed {
			t.Errorf("AllowAll = %+v, %v; want a refusal", res, err)
			break
		}
		left := res.Each[0].Remaining
		if other := res.Each[1].Remaining; left != other {
			t.Errorf("a refusal saw %d left of one limit and %d of the other", left, other)
			break
		}
		if left != last {
			changes, last = changes+1, left
		}
	}
	ended.Store(true)
	all.Wait()
}

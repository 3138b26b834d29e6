package storetest

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// Bench measures decisions on a store with the store's own clock: granted ones on one key and on
// many, and refused ones, each from one caller and from many at the same time. The function open
// returns an empty store and closes it with b.Cleanup.
func Bench(b *testing.B, open func(b *testing.B) limiter.Store) {
	const many = 10_000
	plenty := limiter.TokenBucket{Capacity: 1 << 30, Refill: 1_000_000, Interval: time.Second}
	scarce := limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 24 * time.Hour}
	benchmarks := []struct {
		name   string
		policy limiter.Policy
		keys   uint64
	}{
		{"OneKey", plenty, 1},
		{"ManyKeys", plenty, many},
		{"Window", limiter.FixedWindow{Limit: 1 << 60, Window: time.Hour}, many},
		{"Refused", scarce, 1},
	}
	for _, bm := range benchmarks {
		b.Run(bm.name, func(b *testing.B) {
			l := benchLimiter(b, open(b), bm.policy)
			b.ReportAllocs()
			var i uint64
			for b.Loop() {
				decide(b, l, i%bm.keys)
				i++
			}
		})
		b.Run(bm.name+"Parallel", func(b *testing.B) {
			l := benchLimiter(b, open(b), bm.policy)
			var i atomic.Uint64
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					decide(b, l, i.Add(1)%bm.keys)
				}
			})
		})
	}
}

// benchLimiter returns a Limiter whose key 0 was used once, so that a limit of 1 refuses from the
// first measured decision on.
func benchLimiter(b *testing.B, store limiter.Store, p limiter.Policy) *limiter.Limiter {
	b.Helper()
	l, err := limiter.New(store, "bench", p, limiter.WithTimeout(timeLimit))
	if err != nil {
		b.Fatal(err)
	}
	decide(b, l, 0)
	return l
}

func decide(b *testing.B, l *limiter.Limiter, key uint64) {
	if _, err := l.Allow(context.Background(), "client-"+strconv.FormatUint(key, 10)); err != nil {
		b.Error(err)
	}
}

package memory_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// BenchmarkDecision measures decisions alone: the keys are made beforehand.
func BenchmarkDecision(b *testing.B) {
	keys := make([]string, 1<<14)
	for i := range keys {
		keys[i] = "client-" + strconv.Itoa(i)
	}
	for _, bm := range []struct {
		name   string
		policy limiter.Policy
		keys   int
	}{
		{"BucketManyKeys", limiter.TokenBucket{Capacity: 1 << 30, Refill: 1_000_000, Interval: time.Second}, len(keys)},
		{"BucketOneKey", limiter.TokenBucket{Capacity: 1 << 30, Refill: 1_000_000, Interval: time.Second}, 1},
		{"BucketRefused", limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 24 * time.Hour}, len(keys)},
		{"WindowManyKeys", limiter.FixedWindow{Limit: 1 << 60, Window: time.Hour}, len(keys)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			l, err := limiter.New(memory.New(), "bench", bm.policy)
			if err != nil {
				b.Fatal(err)
			}
			for _, k := range keys[:bm.keys] {
				if _, err := l.Allow(context.Background(), k); err != nil {
					b.Fatal(err)
				}
			}
			var workers atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				ctx := context.Background()
				for i := int(workers.Add(1)) * 7919; pb.Next(); i++ {
					if _, err := l.Allow(ctx, keys[i%bm.keys]); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

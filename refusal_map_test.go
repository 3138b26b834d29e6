package limiter_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

func TestDenyCacheSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 63, 1000} {
		d := newDenying(t, limiter.PerDay(1), limiter.WithDenyCache(size, time.Minute), fixed())
		refuse := func(n int) {
			for i := range n {
				d.fill(strconv.Itoa(i)) // the latest is kept, always
			}
		}
		refuse(size)
		for i := range size { // and all of them, if they fit
			d.expect(strconv.Itoa(i), 1, false, cache)
		}
		for i := range 3 * size {
			must(t, d.Reset(t.Context(), strconv.Itoa(i)))
		}
		held, counted := d.DenyKeys()
		testenv.Equal(t, []int{len(held), counted}, []int{0, 0}, "keys after all were reset, and their count, of size", size)
		refuse(3 * size)
		held, counted = d.DenyKeys()
		testenv.Equal(t, []int{len(held), counted}, []int{size, size}, "keys, and their count, of size", size)
	}
}

func TestDenyCacheConcurrently(t *testing.T) {
	t.Parallel()
	p := limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: 100 * time.Microsecond}
	d := newDenying(t, p, limiter.WithDenyCache(20, time.Second))
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 3_000 {
				key := strconv.Itoa((i*7 + w) % 50)
				r, err := d.Reserve(context.Background(), key, int64(1+i%3), time.Duration(i%2)*time.Millisecond)
				testenv.ErrorIs(t, err, nil, "Reserve")
				switch i % 17 {
				case 0:
					_, err = d.Refund(context.Background(), key, 1)
				case 1:
					err = d.Reset(context.Background(), key)
				default:
					err = r.Cancel(context.Background())
				}
				testenv.ErrorIs(t, err, nil, "giving back")
				if _, counted := d.DenyKeys(); counted > 20 || counted < 0 {
					t.Errorf("%d keys are held", counted)
				}
			}
		})
	}
	all.Wait()
	held, counted := d.DenyKeys()
	testenv.Equal(t, counted, len(held), "the count of keys")
}

// denyKeys are keys of each way to be stored.
var denyKeys = []struct {
	name, key string
	opts      []limiter.Option
}{
	{"Short", "192.0.2.1", nil},
	{"Long", strings.Repeat("x", 300), nil},
	{"Digest", "192.0.2.1", []limiter.Option{limiter.WithKeyDigest([]byte("secret"))}},
}

var denyPolicies = map[string]limiter.Policy{
	"Bucket":  limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 24 * time.Hour},
	"Window":  limiter.FixedWindow{Limit: 1, Window: 30 * 365 * 24 * time.Hour},
	"Sliding": limiter.SlidingWindow{Limit: 1, Window: 30 * 365 * 24 * time.Hour},
}

func TestACachedRefusalAllocatesNothing(t *testing.T) {
	for name, p := range denyPolicies {
		for _, c := range denyKeys {
			t.Run(name+c.name, func(t *testing.T) {
				l := newLimiter(t, memory.New(), p, append(c.opts, limiter.WithDenyCache(10, time.Hour))...)
				for range 2 {
					must(t, testenv.ErrorOf(l.Allow(t.Context(), c.key)))
				}
				if n := testing.AllocsPerRun(100, func() {
					if r, err := l.Allow(t.Context(), c.key); err != nil || r.Source != limiter.SourceDenyCache {
						t.Errorf("Allow = %+v, %v", r, err)
					}
				}); n > 0 && !testenv.Race {
					t.Errorf("%v allocations a refusal", n)
				}
			})
		}
	}
}

func BenchmarkDenyCache(b *testing.B) {
	for name, p := range denyPolicies {
		for _, c := range denyKeys {
			b.Run(name+c.name, func(b *testing.B) { benchDeny(b, p, c.opts, c.key, 1) })
		}
		b.Run(name+"ManyKeys", func(b *testing.B) { benchDeny(b, p, nil, "client-", 1<<14) })
	}
}

// benchDeny measures cached refusals of keys that begin with key.
func benchDeny(b *testing.B, p limiter.Policy, opts []limiter.Option, key string, n int) {
	l, err := limiter.New(memory.New(), "bench", p, append(opts, limiter.WithDenyCache(n, time.Hour))...)
	must(b, err)
	ctx := context.Background()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = key
		if i > 0 {
			keys[i] += strconv.Itoa(i)
		}
		for range 2 {
			must(b, testenv.ErrorOf(l.Allow(ctx, keys[i])))
		}
	}
	var workers atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := int(workers.Add(1)) * 7919; pb.Next(); i++ {
			if r, err := l.Allow(ctx, keys[i%n]); err != nil || r.Source != limiter.SourceDenyCache {
				b.Error(r, err)
			}
		}
	})
}

package limiter_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

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
	"Bucket": limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 24 * time.Hour},
	"Window": limiter.FixedWindow{Limit: 1, Window: 30 * 365 * 24 * time.Hour},
}

func TestACachedRefusalAllocatesNothing(t *testing.T) {
	for name, p := range denyPolicies {
		for _, c := range denyKeys {
			t.Run(name+c.name, func(t *testing.T) {
				l := newLimiter(t, memory.New(), p, append(c.opts, limiter.WithDenyCache(10, time.Hour))...)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ask := func() (r limiter.Result) {
					r, err := l.Allow(ctx, c.key)
					if err != nil {
						t.Error(err)
					}
					return r
				}
				ask()
				ask()
				if n := testing.AllocsPerRun(100, func() {
					if r := ask(); r.Source != limiter.SourceDenyCache {
						t.Errorf("Allow = %+v", r)
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

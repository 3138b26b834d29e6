package storetest

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
)

var chargeCases = []testCase{
	{
		"a Charge that charges nothing",
		"a charge of 0 is a look, and one below 0 is ErrInvalid",
		forEach(allPolicies, func(f *fixture, l *limiter.Limiter) {
			f.passes(l, "k", 1)
			if got, want := f.charge(l, "k", 0), f.peek(l, "k"); got != want {
				f.Errorf("Charge(0) = %+v, Peek %+v", got, want)
			}
			for _, n := range []int64{-1, math.MinInt64} {
				if r, err := l.Charge(context.Background(), "k", n); !errors.Is(err, limiter.ErrInvalid) || r.Allowed {
					f.Errorf("Charge(%d) = %+v, %v, want ErrInvalid", n, r, err)
				}
			}
			if r := f.peek(l, "k"); r.Remaining != limitOf(l.Policy())-1 {
				f.Errorf("afterwards %+v", r)
			}
		}),
	},
}

// takers is how many workers charge one key at once.
const takers = 32

var chargeConcurrencyCases = []testCase{
	{
		"AllowUpTo at once takes exactly what is there",
		"of concurrent requests for up to n, all together take the capacity, and none takes more than it asked for",
		forEach(plain(100, time.Hour, time.Hour), func(f *fixture, l *limiter.Limiter) {
			for key, most := range map[string]int64{"equal": 7, "different": 0} {
				var sum atomic.Int64
				f.concurrently(takers, func(i int) bool {
					n := most
					if n == 0 {
						n = 1 + int64(i)%11
					}
					r, err := l.AllowUpTo(context.Background(), key, n)
					if err != nil || r.Taken < 0 || r.Taken > n || r.Allowed != (r.Taken > 0) {
						f.Errorf("AllowUpTo(%d) = %+v, %v", n, r, err)
					}
					sum.Add(r.Taken)
					return r.Allowed
				})
				if r := f.peek(l, key); sum.Load() != 100 || r.Remaining != 0 {
					f.Errorf("%s requests took %d, want 100, and left %+v", key, sum.Load(), r)
				}
			}
		}),
	},
	{
		"charges at once add up",
		"concurrent charges are all counted, also beside requests, and far beyond the capacity",
		forEach(every(10, s, time.Hour), func(f *fixture, l *limiter.Limiter) {
			for key, with := range map[string]int{"charges": 1, "charges and requests": 2} {
				var sum atomic.Int64
				f.concurrently(takers, func(i int) bool {
					n := 1 + int64(i)%5
					if i%with > 0 {
						passed := f.allowed(l, key, n)
						if passed || countsRefusals(l.Policy()) {
							sum.Add(n)
						}
						return passed
					}
					_, err := l.Charge(context.Background(), key, n)
					if err != nil {
						f.Errorf("Charge(%d): %v", n, err)
					}
					sum.Add(n)
					return true
				})
				r := f.peek(l, key)
				got := r.Used
				if limiter.KindOf(l.Policy()) == limiter.KindBucket {
					got = int64(r.ResetAfter / s)
				}
				if got != sum.Load() {
					f.Errorf("%s: %d were counted, want %d: %+v", key, got, sum.Load(), r)
				}
			}
		}),
	},
	{
		"a block beside requests",
		"after Block has returned no request passes, whatever was under way",
		forEach(every(1000, s, time.Hour), func(f *fixture, l *limiter.Limiter) {
			var over atomic.Bool
			f.concurrently(takers, func(i int) bool {
				if i == 0 {
					f.block(l, "k", time.Hour)
					over.Store(true)
					return true
				}
				passed := false
				for range 8 {
					after := over.Load()
					if passed = f.allowed(l, "k", 1); passed && after {
						f.Errorf("a request passed after the block")
					}
				}
				return passed
			})
			f.refuses(l, "k", 1)
			f.refund(l, "k", 1, false)
		}),
	},
}

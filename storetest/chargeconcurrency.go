package storetest

import (
	"context"
	"sync/atomic"
	"time"
)

// takers is how many workers charge one key at once.
const takers = 32

var chargeConcurrencyCases = []testCase{
	{
		"AllowUpTo at once takes exactly what is there",
		"of concurrent requests for up to n, all together take the capacity, and none takes more than it asked for",
		func(f *fixture) {
			for name, p := range plain(100, time.Hour, time.Hour) {
				l := f.limiter(name, p)
				for key, most := range map[string]int64{"equal": 7, "different": 0} {
					var sum atomic.Int64
					f.concurrently(takers, func(i int) bool {
						n := most
						if n == 0 {
							n = 1 + int64(i)%11
						}
						r, err := l.AllowUpTo(context.Background(), key, n)
						if err != nil || r.Taken < 0 || r.Taken > n || r.Allowed != (r.Taken > 0) {
							f.Errorf("%s: AllowUpTo(%d) = %+v, %v", name, n, r, err)
						}
						sum.Add(r.Taken)
						return r.Allowed
					})
					if r := f.peek(l, key); sum.Load() != 100 || r.Remaining != 0 {
						f.Errorf("%s: %s requests took %d, want 100, and left %+v", name, key, sum.Load(), r)
					}
				}
			}
		},
	},
	{
		"charges at once add up",
		"concurrent charges are all counted, also beside requests, and far beyond the capacity",
		func(f *fixture) {
			for name, p := range every(10, s, time.Hour) {
				l := f.limiter(name, p)
				for key, with := range map[string]int{"charges": 1, "charges and requests": 2} {
					var sum atomic.Int64
					f.concurrently(takers, func(i int) bool {
						n := 1 + int64(i)%5
						if i%with > 0 {
							passed := f.allowed(l, key, n)
							if passed || name == "c" {
								sum.Add(n)
							}
							return passed
						}
						_, err := l.Charge(context.Background(), key, n)
						if err != nil {
							f.Errorf("%s: Charge(%d): %v", name, n, err)
						}
						sum.Add(n)
						return true
					})
					r := f.peek(l, key)
					got := r.Used
					if name == "b" {
						got = int64(r.ResetAfter / s)
					}
					if got != sum.Load() {
						f.Errorf("%s: %s: %d were counted, want %d: %+v", name, key, got, sum.Load(), r)
					}
				}
			}
		},
	},
	{
		"a block beside requests",
		"after Block has returned no request passes, whatever was under way",
		func(f *fixture) {
			for name, p := range every(1000, s, time.Hour) {
				l := f.limiter(name, p)
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
							f.Errorf("%s: a request passed after the block", name)
						}
					}
					return passed
				})
				f.refuses(l, "k", 1)
				f.refund(l, "k", 1, false)
			}
		},
	},
}

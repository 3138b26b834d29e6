package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
)

var allConcurrencyCases = []testCase{
	{
		"random limits in random order at once",
		"whatever limits concurrent requests name, in whatever order, each limit has counted exactly the claims of those that passed, and never more than it admits",
		func(f *fixture) {
			const limits, each = 12, 8
			ls := f.manyLimits(limits, func(i int) int64 { return int64(20 * (1 + i)) })
			seed := f.random().Uint64()
			taken := make([]atomic.Int64, limits)
			f.concurrently(workers, func(w int) bool {
				rnd := rand.New(rand.NewPCG(seed, uint64(w)))
				for range each {
					f.someRequest(ls, rnd, taken)
				}
				return true
			})
			for i, l := range ls {
				got, counted := taken[i].Load(), f.counted(l)
				if got != counted || got > limitOf(l.Policy()) {
					f.Errorf("limit %d of %d: the requests that passed took %d, and the row says %d", i, limitOf(l.Policy()), got, counted)
				}
			}
		},
	},
	{
		"nobody is refused while there is enough for all",
		"concurrent requests over several limits that all fit pass, however often they meet",
		func(f *fixture) {
			ls := f.manyLimits(limiter.MaxClaims, func(int) int64 { return 100_000 })
			seed := f.random().Uint64()
			const each = 3
			if got := f.concurrently(workers, func(w int) bool {
				rnd := rand.New(rand.NewPCG(seed, uint64(w)))
				for range each {
					if res, _ := f.allClaims(ls, someOf(rnd, len(ls)), 1); !res.Allowed {
						return false
					}
				}
				return true
			}); got != workers {
				f.Errorf("%d of %d callers got all of their %d requests through", got, workers, each)
			}
		},
	},
	{
		"the last unit of two limits",
		"of concurrent requests over a bucket and a window that admit one, one passes, also by the store's own clock",
		func(f *fixture) {
			for key := range 4 {
				var b, w *limiter.Limiter
				if key%2 == 0 {
					b, w = f.limiter("b", bucket(1, time.Hour)), f.limiter("w", window(3, time.Hour))
				} else {
					b, w = f.on(f.store, f.prefix+"own", bucket(1, 100*time.Hour)), f.on(f.store, f.prefix+"own", window(3, 9_999*time.Hour))
				}
				claims := []limiter.Claim{{Limiter: b, Key: fmt.Sprint(key)}, {Limiter: w, Key: fmt.Sprint(key)}}
				if got := f.concurrently(workers, func(i int) bool {
					res, err := limiter.AllowAll(context.Background(), claims[i%2], claims[1-i%2])
					if err != nil {
						f.Errorf("AllowAll: %v", err)
					}
					return res.Allowed
				}); got != 1 {
					f.Errorf("%d of %d passed, want 1", got, workers)
				}
				if used := f.peek(w, fmt.Sprint(key)).Used; used != 1 {
					f.Errorf("the window counted %d, want 1", used)
				}
			}
		},
	},
}

// allClaims calls AllowAll for some of the limiters. Like allowed, it may be called from any
// goroutine. It returns false if the call failed.
func (f *fixture) allClaims(ls []*limiter.Limiter, some []int, cost int64) (res limiter.AllResult, ok bool) {
	claims := make([]limiter.Claim, len(some))
	for at, i := range some {
		claims[at] = claim(ls[i], cost)
	}
	res, err := limiter.AllowAll(context.Background(), claims...)
	if err != nil {
		f.Errorf("AllowAll: %v", err)
	}
	return res, err == nil
}

// someRequest sends a request over several limits or, now and then, a single one, a refund or a sweep.
// It adds to taken what was taken of each limit.
func (f *fixture) someRequest(ls []*limiter.Limiter, rnd *rand.Rand, taken []atomic.Int64) {
	cost, i := 1+rnd.Int64N(3), rnd.IntN(len(ls))
	switch kind := rnd.IntN(20); {
	case kind < 3:
		if f.allowed(ls[i], "k", cost) {
			taken[i].Add(cost)
		}
		return
	case kind == 3:
		if sw, ok := f.store.(sweeper); ok {
			if _, err := sw.Sweep(context.Background(), 1000); err != nil {
				f.Errorf("Sweep: %v", err)
			}
		}
		return
	}
	some := someOf(rnd, len(ls))
	res, ok := f.allClaims(ls, some, cost)
	if !ok {
		return
	}
	for at, i := range some {
		if res.Allowed {
			taken[i].Add(cost)
		} else if r := res.Each[at]; !r.Allowed && r.RetryAfter <= 0 {
			f.Errorf("a claim without room: %+v, want RetryAfter", r)
		}
	}
	if res.Allowed && rnd.IntN(3) == 0 { // give one claim back
		at := rnd.IntN(len(some))
		i := some[at]
		if !f.refunds(ls[i], "k", cost, res.Each[at], true) {
			f.Errorf("a refund of %d of limit %d gave nothing back", cost, i)
		}
		taken[i].Add(-cost)
	}
}

// counted is how much the row of the key "k" says was taken, at the time of all takes.
func (f *fixture) counted(l *limiter.Limiter) int64 {
	return countedIn(l.Policy(), f.row(l), f.now.UnixNano())
}

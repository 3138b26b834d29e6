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

var blockCases = []testCase{
	{
		"a blocked bucket is empty when the block ends",
		"a block refuses all requests until it is over, and the bucket fills from then on",
		scripted(bucket(3, s), []call{
			{verb: block, maxWait: 10 * s},
			{n: 1, retry: 11 * s, reset: 13 * s},
			{at: s, verb: upTo, n: 2, retry: 10 * s, reset: 12 * s},
			{at: s, verb: block, maxWait: s}, // shorter: it changes nothing that can be told
			{at: 2 * s, verb: refund, n: 3},
			{at: 3 * s, verb: reserve, n: 1, maxWait: 7 * s, retry: s + ns, reset: 10*s + ns},
			{at: 10 * s, verb: peek, retry: s + ns, reset: 3*s + ns},
			{at: 11 * s, n: 1, retry: ns, reset: 2*s + ns},
			{at: 11*s + ns, n: 1, allowed: true, reset: 3 * s},
			{at: 20 * s, verb: block, maxWait: 5 * s},
			{at: 21 * s, verb: charge, n: 1, retry: 6 * s, reset: 8 * s}, // is paid after the block
		}),
	},
	{
		"a blocked window lasts to its end",
		"a block refuses all requests until the end of the window in which it ends, and refunds do not open it",
		forEach(windows(3, 10*s), func(f *fixture, l *limiter.Limiter) {
			f.script(l, "k", []call{
				{at: s, n: 1, allowed: true, remaining: 2, used: 1, reset: 9 * s},
				{at: s, verb: block, maxWait: 2 * s},
				{at: s, n: 1, used: 3, retry: 9 * s, reset: 9 * s},
				{at: 2 * s, verb: refund, n: 9},
				{at: 2 * s, verb: charge, n: 5, used: 3, retry: 8 * s, reset: 8 * s},
				{at: 10*s - ns, verb: peek, used: 3, retry: ns, reset: ns},
				{at: 10 * s, n: 2, allowed: true, remaining: 1, used: 2, reset: 10 * s},
				{at: 10 * s, verb: block, maxWait: 20 * s},
				{at: 11 * s, verb: block, maxWait: s}, // shorter: it changes nothing
				{at: 11 * s, n: 1, used: 3, retry: 29 * s, reset: 29 * s},
				{at: 35 * s, verb: refund, n: math.MaxInt64},
				{at: 35 * s, verb: peek, n: 3, used: 3, retry: 5 * s, reset: 5 * s},
				{at: 40 * s, n: 3, allowed: true, used: 3, reset: 10 * s},
			})
		}),
	},
	{
		"a block of a window outlasts a change of the policy",
		"no policy of a window ends a block early, or makes it one that a refund opens",
		func(f *fixture) {
			for name, p := range map[string]limiter.Policy{
				"more": window(9, 10*s), "counts": counting(9, 10*s), "shorter": window(9, 5*s), "longer": window(9, time.Minute),
			} {
				f.at(s)
				f.block(f.limiter(name, window(3, 10*s)), "k", 15*s) // until 20 s
				l := f.limiter(name, p)
				for _, at := range []time.Duration{s, 12 * s, 15*s - ns} {
					f.at(at)
					f.refuses(l, "k", 1)
					f.refund(l, "k", 9, false)
					f.charge(l, "k", 1) // which writes the row under the policy
					f.refund(l, "k", 9, false)
				}
			}
		},
	},
	{
		"a block outlasts a clock that is set back",
		"a clock that goes back makes a block later, not shorter, also if a turn was booked behind it",
		forEach(every(3, s, 10*s), func(f *fixture, l *limiter.Limiter) {
			for i := range 16 {
				back := []time.Duration{s, 65 * s, 30 * time.Minute, 23*time.Minute + 8*s}[i%4]
				d := []time.Duration{8 * s, 18 * s}[i/4%2]
				f.at(time.Hour + s)
				f.reset(l, "k")
				f.block(l, "k", d)
				_, _ = l.Reserve(context.Background(), "k", int64(i/8), time.Minute) // not if refusals count
				f.now = f.now.Add(-back)
				f.refuses(l, "k", 1)
				f.now = f.now.Add(d - ns)
				f.refuses(l, "k", 0)
				f.refuses(l, "k", 1)
				f.refund(l, "k", 3, false)
				f.now = f.now.Add(back + 20*s)
				f.passes(l, "k", 1)
			}
		}),
	},
	{
		"a block of a new key, by its own clock",
		"an unused key can be blocked, also by the store's clock",
		forEach(allPolicies, func(f *fixture, l *limiter.Limiter) {
			own := f.on(f.store, f.prefix+"own", l.Policy())
			f.block(own, "k", time.Hour)
			if r := f.allow(own, "k", 1); r.Allowed || r.RetryAfter < 59*time.Minute {
				f.Errorf("by the store's clock: %+v", r)
			}
			f.reset(own, "k")
			f.passes(own, "k", 1)
		}),
	},
}

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
		"a window that is charged counts over its limit",
		"a charge counts whatever is left, until the window ends",
		forEach(windows(5, 10*s), func(f *fixture, l *limiter.Limiter) {
			f.script(l, "k", []call{
				{verb: charge, n: 4, allowed: true, remaining: 1, used: 4, reset: 10 * s},
				{at: s, verb: charge, n: 3, used: 7, retry: 9 * s, reset: 9 * s},
				{at: s, verb: refund, n: 3, allowed: true},
				{at: s, verb: peek, allowed: true, remaining: 1, used: 4, reset: 9 * s},
				{at: s, verb: charge, n: 1, allowed: true, used: 5, retry: 9 * s, reset: 9 * s},
				{at: 10*s - ns, verb: charge, n: 1000, used: 1005, retry: ns, reset: ns},
				{at: 10 * s, n: 5, allowed: true, used: 5, reset: 10 * s},
				{at: 20 * s, verb: charge, n: 5, allowed: true, used: 5, retry: 10 * s, reset: 10 * s},
				{at: 30 * s, verb: charge, n: math.MaxInt64, used: 5, retry: 10 * s, reset: 10 * s},
				{at: 30 * s, verb: charge, n: math.MaxInt64, used: 5, retry: 10 * s, reset: 10 * s},
				{at: 30 * s, verb: refund, n: math.MaxInt64}, // the highest count stays
				{at: 40*s - ns, verb: peek, used: 5, retry: ns, reset: ns},
				{at: 40 * s, verb: charge, n: 1, allowed: true, remaining: 4, used: 1, reset: 10 * s},
			})
		}),
	},
	{
		"a Refund during debt gives nothing back",
		"while a bucket is in debt, neither Refund nor RefundOf changes it, and both say so",
		func(f *fixture) {
			l := f.limiter("l", bucket(5, s))
			res := f.charge(l, "k", 7)
			f.at(2*s - ns)
			f.refund(l, "k", 5, false)
			f.refundOf(l, 7, res, false)
			f.at(2 * s) // the bucket is empty now
			f.refundOf(l, 2, res, true)
			f.passes(l, "k", 2)
			f.refuses(l, "k", 1)
		},
	},
	{
		"debt has a bound",
		"one charge is at most 30 years, all together 2^60 ns, and nothing overflows",
		func(f *fixture) {
			const thirtyYears = 262_980 * time.Hour
			for name, p := range map[string]limiter.TokenBucket{
				"fast": bucket(1, time.Microsecond), "slow": bucket(1, thirtyYears), "large": bucket(int64(thirtyYears/ms), ms),
			} {
				l := f.limiter(name, p)
				most := int64(thirtyYears / p.Interval)
				for _, n := range []int64{most + 1, math.MaxInt64} {
					if r, err := l.Charge(context.Background(), "k", n); !errors.Is(err, limiter.ErrExceedsCapacity) || r.Allowed {
						f.Errorf("Charge(%d) to %+v: %+v, %v, want ErrExceedsCapacity", n, p, r, err)
					}
				}
				if r := f.peek(l, "k"); r.ResetAfter != 0 {
					f.Errorf("%+v: after charges that are too high: %+v", p, r)
				}
				if r := f.charge(l, "k", most); r.ResetAfter != thirtyYears {
					f.Errorf("Charge(%d) to %+v: %+v, want ResetAfter %v", most, p, r, thirtyYears)
				}
				for range 3 {
					f.charge(l, "k", most)
				}
				if r := f.peek(l, "k"); r.Allowed || r.ResetAfter != 1<<60 {
					f.Errorf("%+v: %+v, want ResetAfter 2^60 ns", p, r)
				}
				f.now = f.now.Add(year)
				if r := f.charge(l, "k", 1); r.ResetAfter != min(1<<60, 1<<60-year+p.Interval) {
					f.Errorf("%+v: a charge one year later: %+v", p, r)
				}
				f.at(0)
			}
		},
	},
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
	{
		"AllowUpTo takes what is there",
		"a request for up to n takes as many of n as there is room for, and with 0 it is a refusal of 1",
		func(f *fixture) {
			f.script(f.limiter("b", bucket(5, s)), "k", []call{
				{verb: upTo, n: 3, taken: 3, allowed: true, remaining: 2, reset: 3 * s},
				{verb: upTo, n: 3, taken: 2, allowed: true, reset: 5 * s},
				{verb: upTo, n: 3, retry: s, reset: 5 * s},
				{at: s - ns, verb: upTo, n: math.MaxInt64, retry: ns, reset: 4*s + ns},
				{at: s, verb: upTo, n: math.MaxInt64, taken: 1, allowed: true, reset: 5 * s},
				{at: 3500 * ms, verb: upTo, n: 4, taken: 2, allowed: true, reset: 4500 * ms},
				{at: time.Hour, verb: upTo, n: math.MaxInt64, taken: 5, allowed: true, reset: 5 * s},
				{at: time.Hour, verb: charge, n: 2, retry: 3 * s, reset: 7 * s},
				{at: time.Hour, verb: upTo, n: 1, retry: 3 * s, reset: 7 * s},
			})
			f.script(f.limiter("w", window(5, 10*s)), "k", []call{
				{verb: upTo, n: 3, taken: 3, allowed: true, remaining: 2, used: 3, reset: 10 * s},
				{at: s, verb: upTo, n: 3, taken: 2, allowed: true, used: 5, reset: 9 * s},
				{at: s, verb: upTo, n: 3, used: 5, retry: 9 * s, reset: 9 * s},
				{at: 10 * s, verb: upTo, n: math.MaxInt64, taken: 5, allowed: true, used: 5, reset: 10 * s},
				{at: 10 * s, verb: reserve, n: 1, maxWait: 10 * s, allowed: true, delay: 10 * s, used: 5, reset: 20 * s},
				{at: 10 * s, verb: upTo, n: 1, used: 5, retry: 10 * s, reset: 20 * s},
				{at: 20 * s, verb: upTo, n: 9, taken: 4, allowed: true, used: 5, reset: 10 * s},
				{at: 20 * s, verb: charge, n: 9, used: 14, retry: 10 * s, reset: 10 * s},
				{at: 20 * s, verb: upTo, n: 1, used: 14, retry: 10 * s, reset: 10 * s},
			})
		},
	},
}

const year = 8766 * time.Hour

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

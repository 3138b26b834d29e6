package storetest

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sqlimit/limiter"
)

var chargeCases = []testCase{
	{
		"a bucket that is charged goes into debt",
		"a charge takes whatever is left, and the key passes again exactly when the debt is paid",
		func(f *fixture) {
			f.script(f.limiter("l", bucket(5, s)), "k", []call{
				{verb: charge, n: 3, allowed: true, remaining: 2, reset: 3 * s},
				{verb: charge, n: 2, allowed: true, retry: s, reset: 5 * s}, // RetryAfter is that of the next request
				{verb: charge, n: 2, retry: 3 * s, reset: 7 * s},
				{at: s, verb: charge, n: 1, retry: 3 * s, reset: 7 * s},
				{at: 3 * s, verb: peek, retry: s, reset: 5 * s},
				{at: 4*s - ns, n: 1, retry: ns, reset: 4*s + ns},
				{at: 4*s - ns, verb: peek, n: 5, retry: 4*s + ns, reset: 4*s + ns},
				{at: 4 * s, n: 1, allowed: true, reset: 5 * s},
				{at: 4 * s, verb: charge, n: 1000, retry: 1001 * s, reset: 1005 * s},
				{at: 1005*s - ns, n: 1, retry: ns, reset: 4*s + ns},
				{at: 1005 * s, n: 1, allowed: true, reset: 5 * s},
				{at: 2000 * s, verb: charge, n: 4, allowed: true, remaining: 1, reset: 4 * s},
			})
		},
	},
	{
		"a window that is charged counts over its limit",
		"a charge counts whatever is left, until the window ends",
		func(f *fixture) {
			for name, p := range map[string]limiter.Policy{"w": window(5, 10*s), "c": counting(5, 10*s)} {
				f.script(f.limiter(name, p), "k", []call{
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
			}
		},
	},
	{
		"a charge comes after bookings",
		"a charge behind reservations takes what comes after them, and they can no longer be canceled",
		func(f *fixture) {
			b := f.limiter("b", bucket(1, s))
			f.books(b, "k", 1, 0)
			r := f.books(b, "k", 1, s)
			f.script(b, "k", []call{{verb: charge, n: 2, retry: 4 * s, reset: 4 * s}})
			f.cancel(r)
			f.books(b, "k", 1, 4*s)

			w := f.limiter("w", window(2, 10*s))
			f.books(w, "k", 2, 0)
			f.books(w, "k", 1, 10*s)
			f.script(w, "k", []call{
				{verb: charge, n: 1, used: 2, retry: 20 * s, reset: 20 * s},
				{at: 10 * s, verb: peek, used: 2, retry: 10 * s, reset: 10 * s},
			})
		},
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
		"RefundOf a Charge",
		"a charge is refunded like a request that passed, in its window only",
		func(f *fixture) {
			b := f.limiter("b", bucket(5, s))
			f.refundOf(b, 3, f.charge(b, "k", 3), true)
			f.passes(b, "k", 5)
			for name, p := range map[string]limiter.Policy{"w": window(5, 10*s), "c": counting(5, 10*s)} {
				l := f.limiter(name, p)
				f.at(0)
				res := f.charge(l, "k", 9) // also if there was no room
				f.refundOf(l, 5, res, true)
				f.passes(l, "k", 1)
				f.at(10 * s)
				f.passes(l, "k", 5)
				f.refundOf(l, 4, res, false)
				f.refuses(l, "k", 1)
			}
		},
	},
	{
		"debt carries over to another policy as time",
		"debt beyond an empty bucket is paid at the same instant under any policy, and a running window keeps its count",
		func(f *fixture) {
			f.charge(f.limiter("b", bucket(5, s)), "k", 15)
			f.script(f.limiter("b", bucket(10, 100*ms)), "k", []call{
				{verb: charge, n: 1, retry: 10*s + 200*ms, reset: 11*s + 100*ms},
				{at: 10*s + 200*ms, n: 1, allowed: true, reset: s},
			})
			f.at(12 * s)
			f.charge(f.limiter("w", window(5, 10*s)), "k", 15)
			f.script(f.limiter("w", window(16, 10*s)), "k", []call{
				{at: 12 * s, verb: charge, n: 1, allowed: true, used: 16, retry: 8 * s, reset: 8 * s},
			})
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
		func(f *fixture) {
			for name, p := range allPolicies {
				l := f.limiter(name, p)
				f.passes(l, "k", 1)
				if got, want := f.charge(l, "k", 0), f.peek(l, "k"); got != want {
					f.Errorf("%s: Charge(0) = %+v, Peek %+v", name, got, want)
				}
				for _, n := range []int64{-1, math.MinInt64} {
					if r, err := l.Charge(context.Background(), "k", n); !errors.Is(err, limiter.ErrInvalid) || r.Allowed {
						f.Errorf("%s: Charge(%d) = %+v, %v, want ErrInvalid", name, n, r, err)
					}
				}
				if r := f.peek(l, "k"); r.Remaining != limitOf(p)-1 {
					f.Errorf("%s: afterwards %+v", name, r)
				}
			}
		},
	},
}

const year = 8766 * time.Hour

var upToCases = []testCase{
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
	{
		"what AllowUpTo took can be refunded",
		"a Result of AllowUpTo names the window that it took from",
		func(f *fixture) {
			for name, p := range plainPolicies {
				l := f.limiter(name, p)
				res := f.allowUpTo(l, "k", math.MaxInt64)
				if res.Taken != limitOf(p) {
					f.Errorf("%s: %d were taken, want %d", name, res.Taken, limitOf(p))
				}
				f.refundOf(l, 1, f.allowUpTo(l, "k", 1), false)
				f.refundOf(l, math.MaxInt64, res, true)
				f.passes(l, "k", limitOf(p))
			}
		},
	},
	{
		"AllowUpTo after a policy change",
		"the tokens that are left carry over, and a running window keeps its count",
		func(f *fixture) {
			f.passes(f.limiter("b", bucket(5, s)), "k", 2)
			f.script(f.limiter("b", bucket(9, time.Minute)), "k", []call{{verb: upTo, n: 9, taken: 3, allowed: true, reset: 9 * time.Minute}})
			f.passes(f.limiter("w", window(5, 10*s)), "k", 2)
			f.script(f.limiter("w", window(9, time.Minute)), "k", []call{{verb: upTo, n: 9, taken: 7, allowed: true, used: 9, reset: time.Minute}})
		},
	},
	{
		"PeekN says what AllowN will say",
		"PeekN of any cost predicts AllowN, and writes nothing",
		func(f *fixture) {
			for name, p := range allPolicies {
				l := f.limiter(name, p)
				for i := range 40 {
					n := 1 + int64(i*i)%limitOf(p)
					for cost := range limitOf(p) + 1 {
						f.peekN(l, "k", cost)
					}
					looked := f.peekN(l, "k", n)
					got := f.allow(l, "k", n)
					if got.Allowed != looked.Allowed || got.RetryAfter != looked.RetryAfter {
						f.Fatalf("%s: call %d: PeekN(%d) = %+v, and AllowN then %+v", name, i, n, looked, got)
					}
					f.now = f.now.Add(370 * ms)
				}
				for n, want := range map[int64]error{limitOf(p) + 1: limiter.ErrExceedsCapacity, math.MaxInt64: limiter.ErrExceedsCapacity, -1: limiter.ErrInvalid, math.MinInt64: limiter.ErrInvalid} {
					if r, err := l.PeekN(context.Background(), "k", n); !errors.Is(err, want) || r.Allowed || r.RetryAfter != 0 {
						f.Errorf("%s: PeekN(%d) = %+v, %v, want %v", name, n, r, err, want)
					}
				}
			}
		},
	},
}

package storetest

import (
	"time"

	"github.com/sqlimit/limiter"
)

var decisionCases = []testCase{
	{
		"a bucket tells all of its state",
		"every field of a Result comes from the row that the decision left or found",
		scripted(bucket(5, s), []call{
			{at: 0, verb: peek, allowed: true, remaining: 5},
			{at: 0, n: 1, allowed: true, remaining: 4, reset: 1 * s},
			{at: 0, n: 3, allowed: true, remaining: 1, reset: 4 * s},
			{at: 0, n: 2, remaining: 1, retry: 1 * s, reset: 4 * s},
			{at: 500 * ms, verb: peek, allowed: true, remaining: 1, reset: 3500 * ms},
			{at: 500 * ms, n: 2, remaining: 1, retry: 500 * ms, reset: 3500 * ms},
			{at: 500 * ms, n: 5, remaining: 1, retry: 3500 * ms, reset: 3500 * ms},
			{at: 1 * s, n: 2, allowed: true, reset: 5 * s},
			{at: 1 * s, verb: peek, retry: 1 * s, reset: 5 * s},
			{at: 6*s - ns, verb: peek, allowed: true, remaining: 4, reset: ns},
			{at: 6 * s, verb: peek, allowed: true, remaining: 5},
			{at: 9 * s, n: 5, allowed: true, reset: 5 * s},
		}),
	},
	{
		"a refusal leaves no trace",
		"a refused request changes nothing: a key that was refused has the results of its twin that was not",
		forEach(plainPolicies, func(f *fixture, l *limiter.Limiter) {
			for i := range 40 {
				f.at(time.Duration(i) * 370 * ms)
				n := 1 + int64(i)%limitOf(l.Policy())
				for range 3 { // only one of the twins asks for what it cannot have
					if r := f.peek(l, "asks"); r.Remaining < limitOf(l.Policy()) {
						f.refuses(l, "asks", r.Remaining+1)
					}
				}
				if a, b := f.allow(l, "asks", n), f.allow(l, "rests", n); a != b {
					f.Fatalf("call %d: AllowN(%d) = %+v, its twin %+v", i, n, a, b)
				}
			}
		}),
	},
	{
		"a cost of 0 waits for debts, blocks and bookings",
		"it passes on a key that is used up, is refused until a debt, block or booking is over, and changes nothing",
		func(f *fixture) {
			f.script(f.limiter("b", bucket(3, s)), "k", []call{
				{n: 3, allowed: true, reset: 3 * s},
				{n: 0, allowed: true, reset: 3 * s},
				{verb: reserve, n: 1, maxWait: s, allowed: true, delay: s, reset: 4 * s},
				{n: 0, retry: s, reset: 4 * s},
				{verb: reserve, n: 0, maxWait: s - ns, retry: ns, reset: 4 * s},
				{verb: reserve, n: 0, maxWait: s, allowed: true, delay: s, reset: 4 * s},
				{at: 10 * s, verb: charge, n: 5, retry: 3 * s, reset: 5 * s},
				{at: 10 * s, n: 0, retry: 2 * s, reset: 5 * s},
				{at: 12 * s, verb: block, maxWait: 5 * s},
				{at: 12 * s, n: 0, retry: 5 * s, reset: 8 * s},
				{at: 12 * s, verb: reserve, n: 0, maxWait: time.Minute, allowed: true, delay: 5 * s, reset: 8 * s},
				{at: 17 * s, n: 0, allowed: true, reset: 3 * s},
			})
			f.script(f.limiter("w", window(3, 10*s)), "k", []call{
				{n: 3, allowed: true, used: 3, reset: 10 * s},
				{n: 0, allowed: true, used: 3, reset: 10 * s},
				{verb: charge, n: 1, used: 4, retry: 10 * s, reset: 10 * s},
				{at: s, n: 0, used: 4, retry: 9 * s, reset: 9 * s},
				{at: s, verb: reserve, n: 0, maxWait: 9*s - ns, used: 4, retry: ns, reset: 9 * s},
				{at: s, verb: reserve, n: 0, maxWait: 9 * s, allowed: true, delay: 9 * s, used: 4, reset: 9 * s},
				{at: 10 * s, verb: block, maxWait: 5 * s},
				{at: 10 * s, n: 0, used: 3, retry: 10 * s, reset: 10 * s},
			})
			f.script(f.limiter("c", counting(1, 10*s)), "k", []call{
				{n: 1, allowed: true, used: 1, reset: 10 * s},
				{n: 0, allowed: true, used: 1, reset: 10 * s},
				{n: 1, used: 2, retry: 10 * s, reset: 10 * s},
				{n: 0, used: 2, retry: 10 * s, reset: 10 * s},
			})
			f.passes(f.limiter("lowered", window(3, 10*s)), "k", 3)
			f.script(f.limiter("lowered", window(2, 10*s)), "k", []call{{n: 0, used: 3, retry: 10 * s, reset: 10 * s}})
		},
	},
}

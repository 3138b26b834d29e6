package storetest

import (
	"time"

	"github.com/sqlimit/limiter"
)

var refillCases = []testCase{
	{
		"a client polling every 0.9 intervals gets its full rate",
		"what has come back in part between two requests is never lost",
		func(f *fixture) {
			for _, cost := range []int64{1, 2} {
				l := f.limiter("l", bucket(2*cost, s/time.Duration(cost)))
				key := string(rune('0' + cost))
				f.at(0)
				f.passes(l, key, 2*cost)
				passed := 0
				for i := 1; i <= 100; i++ {
					f.at(time.Duration(i) * 900 * ms)
					if f.allow(l, key, cost).Allowed {
						passed++
					}
				}
				if passed != 90 {
					f.Errorf("cost %d: %d passed in 90 intervals after the burst, want 90", cost, passed)
				}
			}
		},
	},
	{
		"a client polling each tenth of an interval is not starved",
		"requests that are refused, however many, do not put off the next token",
		func(f *fixture) {
			l := f.limiter("l", bucket(1, s))
			for i := range 101 {
				f.at(time.Duration(i) * 100 * ms)
				if r := f.allow(l, "k", 1); r.Allowed != (i%10 == 0) {
					f.Fatalf("call %d: Allow at %v = %+v, want it to pass each full second", i, f.now.Sub(epoch), r)
				}
			}
		},
	},
	{
		"a poll each nanosecond of tokens that do not divide the interval",
		"the time of a token is rounded up to the nanosecond once, and never again",
		func(f *fixture) {
			// 7 tokens in 3 s: one takes 428,571,428.57 ns, so 428,571,429.
			const step = 428_571_429
			l := f.limiter("l", limiter.TokenBucket{Capacity: 1, Refill: 7, Interval: 3 * s})
			for i := range 20 {
				f.at(time.Duration(i) * step)
				f.passes(l, "k", 1)
				for _, early := range []time.Duration{step - 2, step - 1} {
					f.at(time.Duration(i)*step + early)
					f.refuses(l, "k", 1)
				}
			}
		},
	},
	{
		"a limit of 1 recovers although refusals came",
		"a refused request is not counted and does not put off the end of its wait",
		func(f *fixture) {
			for name, p := range map[string]limiter.Policy{"b": bucket(1, time.Minute), "w": window(1, time.Minute)} {
				l := f.limiter(name, p)
				for minute := range 3 {
					f.at(time.Duration(minute) * time.Minute)
					f.passes(l, "k", 1)
					for second := 1; second < 60; second += 2 {
						f.at(time.Duration(minute)*time.Minute + time.Duration(second)*s)
						f.refuses(l, "k", 1)
					}
				}
			}
		},
	},
	{
		"a full bucket does not refill early after a long rest",
		"time that passed while the bucket was full is worth nothing",
		func(f *fixture) {
			l := f.limiter("l", bucket(3, s))
			f.script(l, "k", []call{
				{at: 0, n: 1, allowed: true, remaining: 2, reset: s},
				{at: 10*time.Hour + 900*ms, n: 3, allowed: true, reset: 3 * s},
				{at: 10*time.Hour + 900*ms, n: 1, retry: s, reset: 3 * s},
				{at: 10*time.Hour + 1900*ms - ns, n: 1, retry: ns, reset: 2*s + ns},
				{at: 10*time.Hour + 1900*ms, n: 1, allowed: true, reset: 3 * s},
				{at: 10*time.Hour + 1900*ms, n: 1, retry: s, reset: 3 * s},
			})
		},
	},
	{
		"a bucket that was used in part and rests holds no more than its capacity",
		"tokens never exceed the capacity, whatever was taken and however long it rests",
		func(f *fixture) {
			l := f.limiter("l", bucket(4, s))
			for i := range 6 {
				f.at(time.Duration(i) * time.Hour)
				n := int64(i)%4 + 1
				f.passes(l, "k", n)
				f.now = f.now.Add(time.Duration(n)*s + s/2)
				if r := f.peek(l, "k"); r.Remaining != 4 || r.ResetAfter != 0 {
					f.Fatalf("call %d: after a rest %+v, want a full bucket", i, r)
				}
				f.passes(l, "k", 4)
				f.refuses(l, "k", 1)
			}
		},
	},
	{
		"a row that has expired equals no row",
		"once a bucket is full, or a window has ended, a key has the results of a new one",
		func(f *fixture) {
			for name, p := range allPolicies {
				l := f.limiter(name, p)
				for i, rest := range []time.Duration{0, ns, s, time.Hour, 30 * 24 * time.Hour} {
					old, fresh := "old", string(rune('a'+i))
					f.allow(l, old, limitOf(p))
					f.allow(l, old, 1)
					f.now = f.now.Add(f.peek(l, old).ResetAfter + rest)
					if a, b := f.peek(l, old), f.peek(l, fresh); a != b {
						f.Fatalf("call %d: %s: Peek %v after its reset = %+v, of a new key %+v", i, name, rest, a, b)
					}
					if a, b := f.allow(l, old, 1), f.allow(l, fresh, 1); a != b {
						f.Fatalf("call %d: %s: Allow %v after its reset = %+v, of a new key %+v", i, name, rest, a, b)
					}
					f.reset(l, old)
				}
			}
		},
	},
	{
		"the longest and the shortest policies work",
		"every policy that New accepts is exact, at its extremes too",
		func(f *fixture) {
			const most = 262_980 * time.Hour // 30 years
			f.script(f.limiter("slow", bucket(1, most)), "k", []call{
				{n: 1, allowed: true, reset: most},
				{n: 1, retry: most, reset: most},
				{at: most - ns, n: 1, retry: ns, reset: ns},
				{at: most, n: 1, allowed: true, reset: most},
			})
			const large = int64(most / time.Microsecond)
			fast := limiter.TokenBucket{Capacity: large, Refill: 1_000_000, Interval: s}
			f.script(f.limiter("fast", fast), "k", []call{
				{n: large, allowed: true, reset: most},
				{n: large, retry: most, reset: most},
				{at: time.Microsecond, n: 1, allowed: true, reset: most},
				{at: time.Microsecond, n: 1, retry: time.Microsecond, reset: most},
			})
			f.script(f.limiter("short", window(1<<60, ms)), "k", []call{
				{n: 1 << 60, allowed: true, used: 1 << 60, reset: ms},
				{n: 1 << 60, used: 1 << 60, retry: ms, reset: ms},
				{at: ms, n: 1, allowed: true, remaining: 1<<60 - 1, used: 1, reset: ms},
			})
		},
	},
}

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

var windowCases = []testCase{
	{
		"a late older time neither reopens the old window nor counts in it",
		"a request whose clock was read before the window's edge, but which comes after one from behind it, counts in the row's window",
		scripted(window(3, 10*s), []call{
			{at: 9 * s, n: 2, allowed: true, remaining: 1, used: 2, reset: s},
			{at: 10 * s, n: 2, allowed: true, remaining: 1, used: 2, reset: 10 * s},
			{at: 9*s + 990*ms, n: 1, allowed: true, used: 3, reset: 10*s + 10*ms},
			{at: 9*s + 990*ms, n: 1, used: 3, retry: 10*s + 10*ms, reset: 10*s + 10*ms},
			{at: 9*s + 990*ms, verb: peek, used: 3, retry: 10*s + 10*ms, reset: 10*s + 10*ms},
			{at: 10*s + 10*ms, n: 1, used: 3, retry: 9990 * ms, reset: 9990 * ms},
			{at: 9*s + 990*ms, verb: refund, n: 1, allowed: true},
			{at: 9*s + 990*ms, n: 1, allowed: true, used: 3, reset: 10*s + 10*ms},
		}),
	},
	{
		"requests at once on an expired window",
		"concurrent requests that all find an ended window admit its limit together, not each",
		forEach(map[string]limiter.Policy{"window": window(5, s), "calendar": daily(5)}, func(f *fixture, l *limiter.Limiter) {
			for i := range 5 {
				f.at(time.Duration(i) * day)
				if got := f.concurrently(32, func(int) bool { return f.allowed(l, "k", 1) }); got != 5 {
					f.Fatalf("day %d: %d of 32 passed, want 5", i, got)
				}
			}
		}),
	},
}

var policyCases = []testCase{
	{
		"a booking under a lower limit",
		"after a limit is lowered, a booking counts in the window that it waits for, and not in the one that runs",
		func(f *fixture) {
			for name, policy := range map[string]func(int64) limiter.Policy{
				"window":   func(n int64) limiter.Policy { return window(n, day) },
				"calendar": func(n int64) limiter.Policy { return daily(n) },
			} {
				five, four := f.limiter(name, policy(5)), f.limiter(name, policy(4))
				f.at(day - s)
				f.passes(five, "k", 3)
				f.books(four, "k", 2, s)
				f.at(day)
				f.refuses(four, "k", 3)
			}
		},
	},
	{
		"a late older time under a shorter window",
		"a request whose clock was read earlier counts in the window of the row's time",
		func(f *fixture) {
			for name, p := range windows(5, s) {
				f.at(2500 * ms)
				f.passes(f.limiter(name, window(5, day)), "k", 1)
				f.at(500 * ms)
				f.passes(f.limiter(name, p), "k", 1)
				f.at(2500 * ms)
				f.refuses(f.limiter(name, p), "k", 4)
			}
		},
	},
	{
		"Peek follows a new policy",
		"a page that only polls sees what comes back under a policy whose windows are shorter",
		func(f *fixture) {
			f.passes(f.limiter("window", window(5, 24*time.Hour)), "k", 3)
			f.script(f.limiter("window", window(5, time.Hour)), "k", []call{
				{verb: peek, allowed: true, remaining: 2, used: 3, reset: time.Hour},
				{at: time.Hour - ns, verb: peek, allowed: true, remaining: 2, used: 3, reset: ns},
				{at: time.Hour, verb: peek, allowed: true, remaining: 5},
				{at: time.Hour, n: 5, allowed: true, used: 5, reset: time.Hour},
			})
			f.at(0)
			f.passes(f.limiter("counting", window(5, 24*time.Hour)), "k", 5)
			f.script(f.limiter("counting", counting(5, time.Hour)), "k", []call{
				{verb: peek, used: 5, retry: time.Hour, reset: time.Hour},
				{at: time.Hour, verb: peek, allowed: true, remaining: 5},
			})
		},
	},
	{
		"a window that counts refusals takes over one that does not",
		"where every request is counted, the first one brings the row under its policy, and Peek says what it would say",
		func(f *fixture) {
			f.passes(f.limiter("l", window(2, s)), "k", 2)
			counting := counting(1, 10*s)
			f.script(f.limiter("l", counting), "k", []call{
				{used: 2, retry: s, reset: 10 * s}, // a cost of 0 leaves the row as it is
				{verb: peek, used: 2, retry: 10 * s, reset: 10 * s},
				{n: 1, used: 3, retry: 10 * s, reset: 10 * s},
			})
		},
	},
	{
		"a window's bookings carry over to another length",
		"a frontier that lies ahead becomes the window that its start falls into, full if that one runs already",
		func(f *fixture) {
			old := f.limiter("l", window(1, 10*s))
			for key, c := range map[string]struct {
				p     limiter.FixedWindow
				delay time.Duration
			}{
				"shorter":       {window(3, 4*s), 7 * s},          // 10 s lies in the window from 8 s on, which has room
				"shorter, full": {window(1, 4*s), 11 * s},         // and the next one begins at 12 s
				"longer":        {window(3, 20*s), 19 * s},        // 10 s lies in the window that runs
				"other limit":   {window(3, 10*s), 9 * s},         // room in the frontier
				"much longer":   {window(9, time.Minute), 59 * s}, // as for longer
			} {
				f.at(s)
				f.books(old, key, 1, 0)
				f.books(old, key, 1, 9*s)
				f.refuses(f.limiter("l", c.p), key, 1)
				f.books(f.limiter("l", c.p), key, 1, c.delay)
			}
			f.at(20 * s) // 30 s lies in the window of 20 s that starts now
			f.books(old, "now", 1, 0)
			f.books(old, "now", 1, 10*s)
			f.refuses(f.limiter("l", window(3, 20*s)), "now", 1)
			f.books(f.limiter("l", window(3, 20*s)), "now", 1, 20*s)
		},
	},
	{
		"refusals are not counted in a window that lies ahead",
		"with CountRejected a request that meets bookings of a version without it is refused, and takes nothing of their window",
		func(f *fixture) {
			plain := f.limiter("l", window(3, 10*s))
			counts := f.limiter("l", counting(3, 10*s))
			f.books(plain, "k", 3, 0)
			f.books(plain, "k", 1, 10*s)
			for range 5 {
				f.refuses(counts, "k", 1)
			}
			f.at(10 * s)
			f.passes(counts, "k", 2)
			f.refuses(counts, "k", 1)
		},
	},
}

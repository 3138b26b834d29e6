package storetest

import (
	"time"

	"github.com/sqlimit/limiter"
)

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

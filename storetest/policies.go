package storetest

import (
	"time"

	"github.com/sqlimit/limiter"
)

var policyCases = []testCase{
	{
		"a key that is exhausted recovers at the rate of its new policy",
		"a refusal under a policy that refills faster, or holds more, begins that refill; RetryAfter is true",
		func(f *fixture) {
			day := limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 24 * time.Hour}
			fast := limiter.TokenBucket{Capacity: 100, Refill: 100, Interval: s}
			f.passes(f.limiter("upgrade", day), "k", 1)
			f.script(f.limiter("upgrade", fast), "k", []call{
				{n: 1, retry: 10 * ms, reset: s},
				{at: 10*ms - ns, n: 1, retry: ns, reset: 990*ms + ns},
				{at: 10 * ms, n: 1, allowed: true, reset: s},
			})
			f.at(0)
			f.passes(f.limiter("larger", bucket(10, s)), "k", 1)
			f.script(f.limiter("larger", bucket(100, s)), "k", []call{
				{at: time.Hour, n: 50, remaining: 10, retry: 40 * s, reset: 90 * s}, // full, but never that full
				{at: time.Hour + 40*s, n: 50, allowed: true, reset: 100 * s},
			})
			f.at(0)
			f.passes(f.limiter("shorter", window(5, 24*time.Hour)), "k", 5)
			f.script(f.limiter("shorter", window(5, time.Hour)), "k", []call{
				{n: 1, used: 5, retry: time.Hour, reset: time.Hour},
				{at: time.Hour - ns, n: 1, used: 5, retry: ns, reset: ns},
				{at: time.Hour, n: 1, allowed: true, remaining: 4, used: 1, reset: time.Hour},
			})
			f.at(0)
			f.passes(f.limiter("longer", window(1, 6*s)), "k", 1)
			f.at(4 * s)
			longer := f.limiter("longer", window(1, 10*s))
			for wait, retry := range map[time.Duration]time.Duration{
				0:     2 * s, // when the window of 6 s has ended
				4 * s: 2 * s,
				5 * s: s, // when the one from 10 s on is near enough
			} {
				if r := f.reserve(longer, "k", 1, wait); r.Allowed || r.RetryAfter != retry {
					f.Errorf("Reserve within %v: %+v, want it refused for %v", wait, r.Result, retry)
				}
			}
		},
	},
	{
		"Peek follows a new policy",
		"a page that only polls sees what comes back under a policy that refills faster, or whose windows are shorter",
		func(f *fixture) {
			hourly := limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Hour}
			f.passes(f.limiter("empty", hourly), "k", 10)
			f.script(f.limiter("empty", bucket(10, s)), "k", []call{
				{verb: peek, retry: s, reset: 10 * s},
				{at: s - ns, verb: peek, retry: ns, reset: 9*s + ns},
				{at: s, verb: peek, allowed: true, remaining: 1, reset: 9 * s},
				{at: 10 * s, n: 10, allowed: true, reset: 10 * s},
			})
			f.at(0)
			f.passes(f.limiter("used", hourly), "k", 6)
			f.script(f.limiter("used", bucket(10, s)), "k", []call{
				{verb: peek, allowed: true, remaining: 4, reset: 6 * s},
				{at: 6 * s, verb: peek, allowed: true, remaining: 10},
				{at: 6 * s, n: 10, allowed: true, reset: 10 * s},
			})
			f.at(0)
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
		"a bucket's bookings carry over to another policy",
		"bookings that are outstanding when the policy changes keep their instants, and what comes after them lies behind the last",
		func(f *fixture) {
			old := f.limiter("l", bucket(1, s))
			changed := f.limiter("l", bucket(2, 500*ms))
			f.books(old, "k", 1, 0)
			f.books(old, "k", 1, s)
			f.books(old, "k", 1, 2*s) // the last one acts at 2 s
			f.refuses(changed, "k", 1)
			f.books(changed, "k", 1, 2500*ms)
			f.books(old, "k", 1, 3500*ms)
			f.at(3500*ms - ns)
			f.refuses(changed, "k", 1)
			f.refuses(old, "k", 1)
		},
	},
	{
		"two versions of a policy do not starve a key",
		"policies that alternate at each request, most of them refused, still give the lower of their rates",
		func(f *fixture) {
			fast, slow := f.limiter("l", bucket(2, s)), f.limiter("l", bucket(3, 3*s))
			passed := 0
			for i := range 450 {
				f.at(time.Duration(i) * 200 * ms)
				l := fast
				if i%2 == 1 {
					l = slow
				}
				if f.allow(l, "k", 1).Allowed {
					passed++
				}
			}
			if passed < 30 || passed > 93 { // 90 s at 1 in 3 s; at most 3 + 90 s at 1 in 1 s
				f.Errorf("%d passed in 90 s, want 30 to 93", passed)
			}
		},
	},
	{
		"a window that counts refusals takes over one that does not",
		"where every request is counted, the first one brings the row under its policy, and Peek says what it would say",
		func(f *fixture) {
			f.passes(f.limiter("l", window(2, s)), "k", 2)
			counting := counting(2, 10*s)
			f.script(f.limiter("l", counting), "k", []call{
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

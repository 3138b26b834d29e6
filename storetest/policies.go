package storetest

import (
	"time"

	"github.com/sqlimit/limiter"
)

var policyCases = []testCase{
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

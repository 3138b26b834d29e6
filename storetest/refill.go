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

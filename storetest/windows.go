package storetest

import "time"

var windowCases = []testCase{
	{
		"windows are aligned to 1970",
		"a window does not begin with the first request but with a multiple of its length since 1970",
		func(f *fixture) {
			for _, d := range []time.Duration{ms, 7 * s, time.Minute, 24 * time.Hour, 7 * 24 * time.Hour} {
				l := f.limiter(d.String(), window(1, d))
				f.now = time.Unix(0, 2_000_000_000_123_456_789)
				r := f.allow(l, "k", 1)
				if end := f.now.Add(r.ResetAfter).UnixNano(); end%int64(d) != 0 || r.ResetAfter > d {
					f.Errorf("a window of %v ends after %v, want a multiple of its length", d, r.ResetAfter)
				}
				f.now = f.now.Add(r.ResetAfter - 1)
				f.refuses(l, "k", 1)
				f.now = f.now.Add(1)
				f.passes(l, "k", 1)
			}
		},
	},
	{
		"requests at once on an expired window",
		"concurrent requests that all find an ended window admit its limit together, not each",
		func(f *fixture) {
			l := f.limiter("l", window(5, s))
			for i := range 5 {
				f.at(time.Duration(i) * 10 * s)
				if got := f.concurrently(32, func(int) bool { return f.allowed(l, "k", 1) }); got != 5 {
					f.Fatalf("call %d: %d of 32 passed, want 5", i, got)
				}
			}
		},
	},
}

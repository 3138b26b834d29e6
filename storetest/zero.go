package storetest

import (
	"time"

	"github.com/sqlimit/limiter"
)

// zeroCases are about requests of cost 0.
var zeroCases = []testCase{
	{
		"a cost of 0 waits for debts, blocks and bookings",
		"it passes on a key that is used up, is refused until a debt, block or booking is over, and changes nothing",
		func(f *fixture) {
			f.zero(f.limiter("b", bucket(3, s)), []call{
				{n: 0, allowed: true, remaining: 3},
				{n: 3, allowed: true, reset: 3 * s},
				{n: 0, allowed: true, reset: 3 * s},
				{verb: reserve, n: 1, maxWait: s, allowed: true, delay: s, reset: 4 * s},
				{n: 0, retry: s, reset: 4 * s},
				{verb: reserve, n: 0, maxWait: s - ns, retry: ns, reset: 4 * s},
				{verb: reserve, n: 0, maxWait: s, allowed: true, delay: s, reset: 4 * s},
				{at: s, n: 0, allowed: true, reset: 3 * s},
				{at: 10 * s, verb: charge, n: 5, retry: 3 * s, reset: 5 * s},
				{at: 10 * s, n: 0, retry: 2 * s, reset: 5 * s},
				{at: 12 * s, n: 0, allowed: true, reset: 3 * s},
				{at: 12 * s, verb: block, maxWait: 5 * s},
				{at: 12 * s, n: 0, retry: 5 * s, reset: 8 * s},
				{at: 12 * s, verb: reserve, n: 0, maxWait: time.Minute, allowed: true, delay: 5 * s, reset: 8 * s},
				{at: 17 * s, n: 0, allowed: true, reset: 3 * s},
			})
			f.zero(f.limiter("w", window(3, 10*s)), []call{
				{n: 0, allowed: true, remaining: 3},
				{n: 3, allowed: true, used: 3, reset: 10 * s},
				{n: 0, allowed: true, used: 3, reset: 10 * s},
				{verb: charge, n: 1, used: 4, retry: 10 * s, reset: 10 * s},
				{at: s, n: 0, used: 4, retry: 9 * s, reset: 9 * s},
				{at: s, verb: reserve, n: 0, maxWait: 9*s - ns, used: 4, retry: ns, reset: 9 * s},
				{at: s, verb: reserve, n: 0, maxWait: 9 * s, allowed: true, delay: 9 * s, used: 4, reset: 9 * s},
				{at: 10 * s, n: 0, allowed: true, remaining: 3},
				{at: 10 * s, n: 3, allowed: true, used: 3, reset: 10 * s},
				{at: 10 * s, verb: reserve, n: 1, maxWait: 10 * s, allowed: true, delay: 10 * s, used: 3, reset: 20 * s},
				{at: 10 * s, n: 0, used: 3, retry: 10 * s, reset: 20 * s},
				{at: 20 * s, n: 0, allowed: true, remaining: 2, used: 1, reset: 10 * s},
				{at: 20 * s, verb: block, maxWait: 5 * s},
				{at: 20 * s, n: 0, used: 3, retry: 10 * s, reset: 10 * s},
				{at: 30 * s, n: 0, allowed: true, remaining: 3},
			})
			f.zero(f.limiter("c", limiter.FixedWindow{Limit: 1, Window: 10 * s, CountRejected: true}), []call{
				{n: 1, allowed: true, used: 1, reset: 10 * s},
				{n: 0, allowed: true, used: 1, reset: 10 * s},
				{n: 1, used: 2, retry: 10 * s, reset: 10 * s},
				{n: 0, used: 2, retry: 10 * s, reset: 10 * s},
			})
		},
	},
}

// zero runs calls on the key "k". Those of cost 0 must leave the row alone, and PeekN must agree with
// AllowN.
func (f *fixture) zero(l *limiter.Limiter, calls []call) {
	f.Helper()
	for _, c := range calls {
		f.at(c.at)
		looks := c.n == 0 && c.verb != block
		before := f.row(l)
		f.script(l, "k", []call{c})
		if after := f.row(l); looks && after != before {
			f.Errorf("by %v at %v: a request of cost 0 leaves %+v, before it was %+v", l.Policy(), c.at, after, before)
		}
		if looks && c.verb == allow {
			if peeked, got := f.peekN(l, "k", 0), f.allow(l, "k", 0); peeked != got {
				f.Errorf("by %v at %v: PeekN(0) = %+v, AllowN(0) = %+v", l.Policy(), c.at, peeked, got)
			}
		}
	}
}

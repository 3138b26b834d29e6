package storetest

import (
	"time"

	"github.com/sqlimit/limiter"
)

// The windows of 16 s below have slices of 1 s. What is taken in the second from 0 counts until 17 s.
var slidingCases = []testCase{
	{
		"a sliding window has no edge",
		"the slice of the clock and the 16 before it count, and what was taken comes back slice by slice",
		scripted(sliding(5, 16*s), []call{
			{at: 900 * ms, n: 3, allowed: true, remaining: 2, used: 3, reset: 16100 * ms},
			{at: 1200 * ms, n: 2, allowed: true, used: 5, reset: 16800 * ms},
			{at: 1200 * ms, n: 1, used: 5, retry: 15800 * ms, reset: 16800 * ms},
			{at: 1200 * ms, n: 4, used: 5, retry: 16800 * ms, reset: 16800 * ms},
			{at: 17*s - ns, n: 1, used: 5, retry: ns, reset: s + ns},
			{at: 17 * s, verb: peek, n: 3, allowed: true, remaining: 3, used: 2, reset: s},
			{at: 17 * s, verb: upTo, n: 9, allowed: true, taken: 3, used: 5, reset: 17 * s},
			{at: 18 * s, n: 2, allowed: true, used: 5, reset: 17 * s},
			{at: 35 * s, verb: peek, allowed: true, remaining: 5},
		}),
	},
	{
		"bookings in a sliding window",
		"a booking goes into the first slice that has room for it, and later requests go there or later; a cancel gives its count back, not its time",
		func(f *fixture) {
			l := f.limiter("l", sliding(5, 16*s))
			f.script(l, "k", []call{
				{at: 500 * ms, n: 3, allowed: true, remaining: 2, used: 3, reset: 16500 * ms},
				{at: 1500 * ms, verb: reserve, n: 3, maxWait: 15500*ms - ns, remaining: 2, used: 3, retry: ns, reset: 15500 * ms},
				{at: 1500 * ms, verb: reserve, n: 3, maxWait: 15500 * ms, allowed: true, used: 5, delay: 15500 * ms, reset: 32500 * ms},
				{at: 1500 * ms, n: 1, used: 5, retry: 15500 * ms, reset: 32500 * ms},
				{at: 1500 * ms, verb: refund, n: 1},
			})
			f.at(2 * s)
			first := f.books(l, "k", 2, 15*s) // beside the other one
			last := f.books(l, "k", 1, 32*s)
			f.cancel(first)
			if r := f.peek(l, "k"); r.RetryAfter != 32*s || r.ResetAfter != 49*s {
				f.Errorf("after a cancel that is not of the latest booking: %+v", r)
			}
			f.cancel(last)
			if r := f.peek(l, "k"); r.Used != 5 || r.RetryAfter != 32*s || r.ResetAfter != 32*s {
				f.Errorf("after a cancel: %+v, want the key free from 34 s on", r)
			}
			f.at(34 * s)
			f.passes(l, "k", 5)
		},
	},
	{
		"a block of a sliding window",
		"the block lasts until the slice after the one in which it ends; refunds and cancels do not end it, and what was counted keeps counting",
		func(f *fixture) {
			l := f.limiter("l", sliding(5, 16*s))
			f.script(l, "k", []call{
				{at: 500 * ms, n: 3, allowed: true, remaining: 2, used: 3, reset: 16500 * ms},
				{at: 500 * ms, verb: block, maxWait: 1500 * ms},
				{at: 2 * s, n: 1, used: 5, retry: s, reset: 15 * s},
				{at: 2 * s, verb: upTo, n: 1, used: 5, retry: s, reset: 15 * s},
				{at: 2 * s, verb: refund, n: 3},
				{at: 2 * s, verb: block, maxWait: ns},
				{at: 3 * s, n: 3, remaining: 2, used: 3, retry: 14 * s, reset: 14 * s},
				{at: 3 * s, n: 2, allowed: true, used: 5, reset: 17 * s},
				{at: 4 * s, verb: block, maxWait: time.Minute},
				{at: 4 * s, verb: reset},
				{at: 4 * s, n: 5, allowed: true, used: 5, reset: 17 * s},
			})
			f.at(100 * s)
			r := f.books(l, "other", 5, 0)
			f.block(l, "other", 10*s)
			f.cancel(r)
			f.refuses(l, "other", 1)
		},
	},
	{
		"charges and refunds of a sliding window",
		"a charge counts in the slice of the clock; RefundOf credits the slice that was charged, and Refund the oldest ones that count",
		func(f *fixture) {
			l := f.limiter("l", sliding(5, 16*s))
			f.at(500 * ms)
			early := f.allow(l, "k", 2)
			f.at(2500 * ms)
			late := f.charge(l, "k", 9)
			f.script(l, "k", []call{
				{at: 3 * s, verb: peek, used: 11, retry: 16 * s, reset: 16 * s},
				{at: 3 * s, verb: refund, n: 1, allowed: true}, // of 0 s
			})
			f.refundOf(l, 6, late, true)
			f.script(l, "k", []call{
				{at: 3 * s, verb: peek, n: 1, allowed: true, remaining: 1, used: 4, reset: 16 * s},
				{at: 17 * s, verb: peek, n: 1, allowed: true, remaining: 2, used: 3, reset: 2 * s},
			})
			f.refundOf(l, 1, early, false) // its slice no longer counts
			f.refundOf(l, 9, late, true)
			f.refund(l, "k", 1, false)

			f.at(100 * s)
			f.books(l, "ahead", 5, 0)
			f.books(l, "ahead", 1, 17*s)
			f.charge(l, "ahead", 4)
			f.at(117 * s)
			f.refuses(l, "ahead", 5) // the booking counts, and the charge no longer does
			f.passes(l, "ahead", 4)
		},
	},
	{
		"a sliding window whose policy changes",
		"another limit keeps all counts; another length puts what counts into the slices that hold the last instants of the old ones, and a refusal writes that only if slices became shorter",
		func(f *fixture) {
			old := f.limiter("l", sliding(5, 16*s))
			f.at(500 * ms)
			f.passes(old, "k", 3)
			f.script(f.limiter("l", sliding(4, 16*s)), "k", []call{
				{at: s, n: 2, remaining: 1, used: 3, retry: 16 * s, reset: 16 * s},
				{at: s, n: 1, allowed: true, used: 4, reset: 17 * s},
			})
			f.at(0)
			f.passes(old, "longer", 5)
			longer := f.limiter("l", sliding(5, 160*s)) // slices of 10 s
			f.script(longer, "longer", []call{
				{at: 5 * s, n: 1, used: 5, retry: 165 * s, reset: 165 * s},
				{at: 170*s - ns, n: 1, used: 5, retry: ns, reset: ns},
			})
			f.at(9 * s)
			f.passes(longer, "shorter", 5)
			f.script(old, "shorter", []call{
				{at: 9500 * ms, n: 1, used: 5, retry: 16500 * ms, reset: 16500 * ms},
				{at: 26 * s, n: 5, allowed: true, used: 5, reset: 17 * s},
			})
		},
	},
	{
		"two sliding windows in turn",
		"while two lengths are in use, no more passes in the longer window than the limit for each shorter one in it, and one more",
		func(f *fixture) {
			r := f.random()
			short, long := f.limiter("l", sliding(4, 16*s)), f.limiter("l", sliding(4, 48*s))
			var passed []time.Duration
			for at := time.Duration(0); at < 1000*s; at += time.Duration(r.Int64N(int64(2 * s))) {
				l := []*limiter.Limiter{short, long}[r.IntN(2)]
				if f.at(at); f.allow(l, "k", 1).Allowed {
					passed = append(passed, at)
				}
			}
			for i, from := range passed {
				inShort, inLong := 0, 0
				for _, at := range passed[i:] {
					if at <= from+16*s {
						inShort++
					}
					if at <= from+48*s {
						inLong++
					}
				}
				if inShort > 4 || inLong > 4*(3+1) {
					f.Fatalf("from %v on, %d passed in 16 s and %d in 48 s, want at most 4 and 16", from, inShort, inLong)
				}
			}
			if len(passed) < 4*1000/51/2 {
				f.Errorf("%d passed in 1000 s: the two starve the key", len(passed))
			}
		},
	},
	{
		"a sliding window and a clock that was ahead",
		"what counted when the clock was set back counts for as long from then on, and a booking lies as far ahead as before",
		func(f *fixture) {
			l := f.limiter("l", sliding(5, 16*s))
			f.script(l, "k", []call{
				{at: time.Hour + 900*ms, n: 3, allowed: true, remaining: 2, used: 3, reset: 16100 * ms},
				{at: time.Hour + 2*s, n: 2, allowed: true, used: 5, reset: 17 * s},
				{at: 9500 * ms, n: 1, used: 5, retry: 15500 * ms, reset: 16500 * ms},
				{at: 25*s - ns, n: 1, used: 5, retry: ns, reset: s + ns},
				{at: 25 * s, n: 3, allowed: true, used: 5, reset: 17 * s},
			})
			f.at(time.Hour)
			f.books(l, "booked", 5, 0)
			f.books(l, "booked", 5, 17*s)
			f.script(l, "booked", []call{{at: 500 * ms, n: 1, used: 5, retry: 34500 * ms, reset: 34500 * ms}})
			f.at(18 * s)
			f.refuses(l, "booked", 1)
		},
	},
	{
		"an own clock may be late by a sliding window",
		"an operation whose clock is behind the row's by up to the window counts in the row's newest slice",
		scripted(sliding(5, 16*s), []call{
			{at: 20 * s, n: 3, allowed: true, remaining: 2, used: 3, reset: 17 * s},
			{at: 4 * s, n: 2, allowed: true, used: 5, reset: 33 * s},
			{at: 4 * s, n: 1, used: 5, retry: 33 * s, reset: 33 * s},
			{at: 4*s - ns, n: 1, used: 5, retry: 16*s + ns, reset: 16*s + ns},
		}),
	},
}

package storetest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sqlimit/limiter"
)

var giveBackCases = []testCase{
	{
		"Reset makes a key unused",
		"after a reset a key has the results of a new one, bookings included, and resetting a new key is no error",
		forEach(allPolicies, func(f *fixture, l *limiter.Limiter) {
			limit := limitOf(l.Policy())
			f.passes(l, "k", limit)
			f.refuses(l, "k", 1)
			if !countsRefusals(l.Policy()) {
				f.reserve(l, "k", 1, limiter.MaxReserve)
			}
			for key, want := range map[string]bool{"unused": false, "k": true} {
				op := limiter.Op{Kind: limiter.OpReset, Name: l.Name(), Key: key, Policy: l.Policy(), At: f.now.UnixNano(), Timeout: timeLimit}
				if state, err := f.store.Do(context.Background(), op); err != nil || state.Took != want {
					f.Errorf("a reset of the key %q: %+v, %v, want Took %v", key, state, err, want)
				}
			}
			if a, b := f.peek(l, "k"), f.peek(l, "new"); a != b {
				f.Errorf("after Reset %+v, a new key %+v", a, b)
			}
			f.passes(l, "k", limit)
			f.refuses(l, "k", 1)
			f.passes(l, "other", limit)
			f.reset(l, "k")
			f.refuses(l, "other", 1)
		}),
	},
	{
		"a canceled booking of a window is free again",
		"Cancel gives back while the frontier lies in the booked window, until the booking may act",
		func(f *fixture) {
			l := f.limiter("w", window(2, 10*s))
			f.books(l, "k", 2, 0)
			a := f.books(l, "k", 1, 10*s)
			b := f.books(l, "k", 1, 10*s)
			f.cancel(a)
			f.cancel(a)
			c := f.books(l, "k", 1, 10*s)
			f.books(l, "k", 1, 20*s)
			f.cancel(b) // the frontier has moved on
			f.cancel(c)
			f.books(l, "k", 1, 20*s)
			f.books(l, "k", 1, 30*s)

			f.at(time.Hour)
			f.books(l, "k", 2, 0)
			r := f.books(l, "k", 2, 10*s)
			f.at(time.Hour + 10*s + ns)
			f.cancel(r)
			f.refuses(l, "k", 1)
		},
	},
	{
		"a cancel under later bookings books nothing twice",
		"a booking with others behind it stays: giving it back would let two act at one instant",
		func(f *fixture) {
			l := f.limiter("l", bucket(1, s))
			acts := map[time.Duration]bool{}
			var rs []*limiter.Reservation
			for i := range 5 {
				rs = append(rs, f.books(l, "k", 1, time.Duration(i)*s))
				acts[time.Duration(i)*s] = true
			}
			for _, r := range rs[:4] {
				f.cancel(r)
			}
			for range 3 {
				r := f.reserve(l, "k", 1, time.Minute)
				if acts[r.Delay] {
					f.Fatalf("a second booking for %v", r.Delay)
				}
				acts[r.Delay] = true
			}
			// And not through a booking that is given back from under them, either.
			last := f.books(l, "k", 1, 8*s)
			f.cancel(last)
			f.cancel(rs[4])
			f.books(l, "k", 1, 8*s)
		},
	},
	{
		"a cancel under another policy does nothing",
		"a booking belongs to the policy that made it: once the row is another's, it stays",
		func(f *fixture) {
			old, changed := f.limiter("l", bucket(1, s)), f.limiter("l", bucket(2, s))
			f.books(old, "k", 1, 0)
			r := f.books(old, "k", 1, s)
			f.books(changed, "k", 1, 2*s)
			f.cancel(r)
			f.books(changed, "k", 1, 3*s)

			// Both are full again in 2 s, and so is the bucket of the booking.
			for _, changed := range []*limiter.Limiter{changed, f.limiter("l", bucket(1, 2*s))} {
				f.reset(old, "k")
				f.books(old, "k", 1, 0)
				r = f.books(old, "k", 1, s)
				f.reset(old, "k")
				f.passes(changed, "k", limitOf(changed.Policy()))
				f.cancel(r)
				f.refuses(changed, "k", 1)
			}

			ten, five := f.limiter("w", window(2, 10*s)), f.limiter("w", window(9, 5*s))
			f.books(ten, "k", 2, 0)
			r = f.books(ten, "k", 1, 10*s)
			f.books(five, "k", 1, 10*s) // in the window that starts with the booked one
			f.cancel(r)
			f.script(five, "k", []call{{at: 10 * s, verb: peek, allowed: true, remaining: 7, used: 2, reset: 5 * s}})
		},
	},
	{
		"Refund gives back and never above full",
		"a refund gives back at most what was taken, and says whether it gave anything back",
		func(f *fixture) {
			f.script(f.limiter("b", bucket(5, s)), "k", []call{
				{verb: refund, n: 3}, // of a key that does not exist
				{verb: peek, allowed: true, remaining: 5},
				{n: 4, allowed: true, remaining: 1, reset: 4 * s},
				{verb: refund, n: 1, allowed: true},
				{verb: peek, allowed: true, remaining: 2, reset: 3 * s},
				{verb: refund, n: 1 << 50, allowed: true},
				{verb: refund, n: 1}, // of a full bucket
				{verb: peek, allowed: true, remaining: 5},
				{verb: refund, n: math.MaxInt64},
				{n: 5, allowed: true, reset: 5 * s},
				{n: 1, retry: s, reset: 5 * s},
				{at: 2 * s, verb: refund, n: 1, allowed: true},
				{at: 2 * s, n: 3, allowed: true, reset: 5 * s},
				{at: 7*s - ns, verb: refund, n: 1, allowed: true}, // a nanosecond's worth of it
				{at: 7*s - ns, verb: refund, n: 1},
				{at: 7*s - ns, n: 5, allowed: true, reset: 5 * s},
				{at: 12*s - ns, verb: refund, n: 5}, // it has refilled by itself
				{at: 12*s - ns, n: 5, allowed: true, reset: 5 * s},
				{at: 12*s - ns, verb: reset},
				{at: 12*s - ns, verb: refund, n: 5},
			})
			f.script(f.limiter("w", window(5, 10*s)), "k", []call{
				{verb: refund, n: 3},
				{n: 4, allowed: true, remaining: 1, used: 4, reset: 10 * s},
				{verb: refund, n: 1, allowed: true},
				{verb: peek, allowed: true, remaining: 2, used: 3, reset: 10 * s},
				{verb: refund, n: math.MaxInt64, allowed: true},
				{verb: refund, n: 1}, // of a window in which nothing is used
				{verb: peek, allowed: true, remaining: 5},
				{n: 5, allowed: true, used: 5, reset: 10 * s},
				{n: 1, used: 5, retry: 10 * s, reset: 10 * s},
				{at: 10 * s, verb: refund, n: 5}, // the window that it was for is over
				{at: 10 * s, n: 3, allowed: true, remaining: 2, used: 3, reset: 10 * s},
				{at: 19 * s, verb: refund, n: 1, allowed: true},
				{at: 19 * s, n: 3, allowed: true, used: 5, reset: s},
				{at: 19 * s, verb: reset},
				{at: 19 * s, verb: refund, n: 5},
			})
		},
	},
	{
		"Refund does nothing while bookings are outstanding",
		"what a refund would give back under outstanding bookings is booked already",
		func(f *fixture) {
			b := f.limiter("b", bucket(1, s))
			f.books(b, "k", 1, 0)
			f.books(b, "k", 1, s)
			f.at(s - ns)
			f.refund(b, "k", 1, false)
			f.books(b, "k", 1, s+ns)
			f.at(2 * s) // the last one may act: nothing is outstanding any more
			f.refund(b, "k", 1, true)
			f.passes(b, "k", 1)
			f.refuses(b, "k", 1)

			w := f.limiter("w", window(2, 10*s))
			f.at(0)
			f.books(w, "k", 2, 0)
			f.books(w, "k", 1, 10*s)
			f.refund(w, "k", 2, false)
			f.refuses(w, "k", 1)
			f.books(w, "k", 1, 10*s)
			f.books(w, "k", 1, 20*s)
		},
	},
	{
		"RefundOf credits only the window that was charged",
		"a refund that comes after its window has ended gives nothing back, whatever others were charged since",
		forEach(windows(5, 10*s), func(f *fixture, l *limiter.Limiter) {
			f.at(9 * s)
			late, early := f.allow(l, "k", 2), f.allow(l, "k", 3)
			f.at(10*s - ns)
			f.refundOf(l, 3, early, true)
			f.at(10 * s)
			f.refundOf(l, 2, late, false) // nobody has used the next window yet
			f.passes(l, "k", 5)
			f.refundOf(l, 2, late, false)
			f.at(9 * s)
			f.refundOf(l, 2, late, false) // nor by a clock that is a little behind
			f.at(10 * s)
			f.refuses(l, "k", 1)
		}),
	},
	{
		"RefundOf credits the window that a late clock was charged in",
		"a clock a little behind the row's is charged in the row's window, and refunded there",
		func(f *fixture) {
			l := f.limiter("l", window(5, 10*s))
			f.at(10 * s)
			f.passes(l, "k", 4)
			f.at(9*s + 990*ms)
			res := f.allow(l, "k", 1)
			f.at(11 * s)
			f.refuses(l, "k", 1)
			f.refundOf(l, 1, res, true)
			f.passes(l, "k", 1)
		},
	},
	{
		"RefundOf does not credit a window of another length",
		"windows of different lengths are different windows, even if they start together",
		func(f *fixture) {
			short, long := f.limiter("l", window(5, 10*s)), f.limiter("l", window(5, 30*s))
			res := f.allow(short, "k", 5)
			f.at(15 * s)
			f.passes(long, "k", 5)
			f.refundOf(short, 5, res, false)
			f.refundOf(long, 5, res, false)
			f.refuses(long, "k", 1)
		},
	},
	{
		"concurrent refunds give back what was used and no more",
		"of refunds at once, as many give something back as it takes to give all of it back",
		forEach(plain(20, time.Hour, time.Hour), func(f *fixture, l *limiter.Limiter) {
			for cost, want := range map[int64]int64{1: 10, 3: 4, 7: 2, 100: 1} {
				key := fmt.Sprint(cost)
				res := f.allow(l, key, 10)
				if got := f.concurrently(workers, func(i int) bool { return f.refunds(l, key, cost, res, i%2 == 0) }); got != want {
					f.Errorf("%d of %d refunds of %d gave something back, want %d", got, workers, cost, want)
				}
				if r := f.peek(l, key); r.Remaining != 20 || r.ResetAfter != 0 {
					f.Errorf("after refunds of %d: %+v, want an unused key", cost, r)
				}
			}
		}),
	},
}

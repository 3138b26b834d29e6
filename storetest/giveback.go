package storetest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
)

var giveBackCases = []testCase{
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
		},
	},
	{
		"RefundOf credits only the window that was charged",
		"a refund credits its window while that runs, also for a charge above the limit, and nothing later, whatever others were charged since",
		forEach(windows(5, 10*s), func(f *fixture, l *limiter.Limiter) {
			f.at(9 * s)
			late, early := f.allow(l, "k", 2), f.allow(l, "k", 3)
			f.at(10*s - ns)
			f.refundOf(l, 3, early, true)
			f.refundOf(l, 5, f.charge(l, "k", 5), true) // the charge had no room
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

var reservationCases = []testCase{
	{
		"concurrent waiters do not overtake each other",
		"reservations made at once have delays that are all distinct and one step apart",
		func(f *fixture) {
			const workers, free = 48, 4
			for name, c := range map[string]struct {
				policy limiter.Policy
				delay  func(i int) time.Duration // of the i-th in order
			}{
				"bucket": {bucket(free, 100*ms), func(i int) time.Duration { return time.Duration(max(0, i-free+1)) * 100 * ms }},
				"window": {window(free, s), func(i int) time.Duration { return time.Duration(i/free) * s }},
			} {
				l := f.limiter(name, c.policy)
				for key := range 3 {
					delays := make([]time.Duration, workers)
					f.concurrently(workers, func(i int) bool {
						r, err := l.Reserve(context.Background(), fmt.Sprint(key), 1, time.Minute)
						if err != nil {
							f.Errorf("Reserve: %v", err)
						}
						delays[i] = r.Delay
						return r.Allowed
					})
					slices.Sort(delays)
					for i, got := range delays {
						if want := c.delay(i); got != want {
							f.Fatalf("%s: delay %d in order is %v, want %v; all: %v", name, i, got, want, delays)
						}
					}
				}
			}
		},
	},
	{
		"the longest wait can be booked",
		"a reservation reaches up to MaxReserve ahead and not a nanosecond further",
		func(f *fixture) {
			l := f.limiter("l", bucket(1, limiter.MaxReserve))
			f.books(l, "k", 1, 0)
			f.books(l, "k", 1, limiter.MaxReserve)
			if r := f.reserve(l, "k", 1, limiter.MaxReserve); r.Allowed || r.RetryAfter != limiter.MaxReserve {
				f.Errorf("a third turn: %+v, want RetryAfter %v", r.Result, limiter.MaxReserve)
			}
		},
	},
}

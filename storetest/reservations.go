package storetest

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
)

var reservationCases = []testCase{
	{
		"a bucket's reservations tell all of their state",
		"a reservation books full_at further ahead and reads its delay from what it wrote",
		func(f *fixture) {
			f.script(f.limiter("l", bucket(2, s)), "k", []call{
				{verb: reserve, n: 1, allowed: true, remaining: 1, reset: s},
				{verb: reserve, n: 2, maxWait: s, allowed: true, reset: 3 * s, delay: s},
				{verb: reserve, n: 1, maxWait: 2*s - ns, retry: ns, reset: 3 * s},
				{verb: reserve, n: 1, maxWait: 2 * s, allowed: true, reset: 4 * s, delay: 2 * s},
				{n: 1, retry: 3 * s, reset: 4 * s},
				{verb: peek, retry: 3 * s, reset: 4 * s},
				{at: 3 * s, n: 1, allowed: true, reset: 2 * s},
				{at: 3 * s, verb: reserve, n: 0, allowed: true, reset: 2 * s},
				{at: 5*s + s/2, verb: reserve, n: 2, maxWait: time.Hour, allowed: true, reset: 2 * s},
			})
		},
	},
	{
		"a window's reservations tell all of their state",
		"a reservation goes into the first window with room from the frontier on, and all before it count as full",
		func(f *fixture) {
			f.script(f.limiter("l", window(2, 10*s)), "k", []call{
				{at: s, verb: reserve, n: 1, allowed: true, remaining: 1, used: 1, reset: 9 * s},
				{at: s, verb: reserve, n: 2, maxWait: 9*s - ns, remaining: 1, used: 1, retry: ns, reset: 9 * s},
				{at: s, verb: reserve, n: 2, maxWait: 9 * s, allowed: true, used: 2, reset: 19 * s, delay: 9 * s},
				{at: s, n: 1, used: 2, retry: 19 * s, reset: 19 * s},
				{at: s, verb: reserve, n: 1, maxWait: time.Minute, allowed: true, used: 2, reset: 29 * s, delay: 19 * s},
				{at: s, n: 1, used: 2, retry: 19 * s, reset: 29 * s},
				{at: s, n: 2, used: 2, retry: 29 * s, reset: 29 * s},
				{at: 12 * s, verb: peek, used: 2, retry: 8 * s, reset: 18 * s},
				{at: 20 * s, n: 1, allowed: true, used: 2, reset: 10 * s},
				{at: 20 * s, n: 1, used: 2, retry: 10 * s, reset: 10 * s},
				{at: 30 * s, n: 2, allowed: true, used: 2, reset: 10 * s},
			})
		},
	},
	{
		"waiters do not overtake each other",
		"reservations get their turns in the order in which they came, one step apart",
		func(f *fixture) {
			b := f.limiter("b", bucket(1, 100*ms))
			var last time.Duration
			for i := range 30 {
				f.at(time.Duration(i) * 10 * ms) // the queue grows faster than it moves
				r := f.reserve(b, "k", 1, time.Minute)
				act := f.now.Add(r.Delay).Sub(epoch)
				if !r.Allowed || act != time.Duration(i)*100*ms {
					f.Fatalf("call %d: acts at %v, want %v; the one before it acts at %v", i, act, time.Duration(i)*100*ms, last)
				}
				last = act
				f.refuses(b, "k", 1) // nobody jumps the queue
			}
			w := f.limiter("w", window(3, s))
			for i := range 30 {
				f.at(time.Duration(i) * 10 * ms)
				r := f.reserve(w, "k", 1, time.Minute)
				window := f.now.Add(r.Delay).Sub(epoch) / s
				if !r.Allowed || window != time.Duration(i/3) {
					f.Fatalf("call %d: booked %v ahead, in window %d, want %d", i, r.Delay, window, i/3)
				}
			}
		},
	},
	{
		"concurrent waiters do not overtake each other",
		"reservations made at once have delays that are all distinct and one step apart",
		func(f *fixture) {
			const workers, free = 48, 4
			b, w := f.limiter("b", bucket(free, 100*ms)), f.limiter("w", window(free, s))
			for key := range 3 {
				delays := make([]time.Duration, workers)
				f.concurrently(workers, func(i int) bool {
					r, err := b.Reserve(context.Background(), string(rune('a'+key)), 1, time.Minute)
					if err != nil {
						f.Errorf("Reserve: %v", err)
					}
					delays[i] = r.Delay
					return r.Allowed
				})
				slices.Sort(delays)
				for i, got := range delays {
					if want := time.Duration(max(0, i-free+1)) * 100 * ms; got != want {
						f.Fatalf("bucket: delay %d in order is %v, want %v; all: %v", i, got, want, delays)
					}
				}
				f.concurrently(workers, func(i int) bool {
					r, err := w.Reserve(context.Background(), string(rune('a'+key)), 1, time.Minute)
					if err != nil {
						f.Errorf("Reserve: %v", err)
					}
					delays[i] = r.Delay
					return r.Allowed
				})
				slices.Sort(delays)
				for i, got := range delays {
					if want := time.Duration(i/free) * s; got != want {
						f.Fatalf("window: delay %d in order is %v, want %v; all: %v", i, got, want, delays)
					}
				}
			}
		},
	},
	{
		"a refused reservation books nothing",
		"a turn beyond maxWait leaves no trace, its Delay is the longest there is, and its Cancel does nothing",
		func(f *fixture) {
			for name, p := range map[string]limiter.Policy{"b": bucket(1, 10*s), "w": window(1, 10*s)} {
				l := f.limiter(name, p)
				f.passes(l, "k", 1)
				for range 5 {
					r := f.reserve(l, "k", 1, 9*s)
					if r.Allowed || r.Delay != math.MaxInt64 || r.RetryAfter != s {
						f.Fatalf("%s: Reserve = %+v, Delay %v, want it refused, RetryAfter 1s", name, r.Result, r.Delay)
					}
					f.cancel(r)
				}
				f.books(l, "k", 1, 10*s)
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

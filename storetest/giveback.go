package storetest

import (
	"context"
	"time"

	"github.com/sqlimit/limiter"
)

var giveBackCases = []testCase{
	{
		"Reset makes a key unused",
		"after a reset a key has the results of a new one, bookings included, and resetting a new key is no error",
		func(f *fixture) {
			for name, p := range allPolicies {
				l := f.limiter(name, p)
				f.passes(l, "k", limitOf(p))
				f.refuses(l, "k", 1)
				for key, want := range map[string]bool{"unused": false, "k": true} {
					op := limiter.Op{Kind: limiter.OpReset, Name: l.Name(), Key: key, Policy: p, At: f.now.UnixNano(), Timeout: timeLimit}
					if state, err := f.store.Do(context.Background(), op); err != nil || state.Took != want {
						f.Errorf("%s: a reset of the key %q: %+v, %v, want Took %v", name, key, state, err, want)
					}
				}
				if a, b := f.peek(l, "k"), f.peek(l, "new"); a != b {
					f.Errorf("%s: after Reset %+v, a new key %+v", name, a, b)
				}
				f.passes(l, "k", limitOf(p))
				f.refuses(l, "k", 1)
				f.passes(l, "other", limitOf(p))
				f.reset(l, "k")
				f.refuses(l, "other", 1)
			}
			l := f.limiter("booked", bucket(1, s))
			f.books(l, "k", 1, 0)
			f.books(l, "k", 1, s)
			f.reset(l, "k")
			f.books(l, "k", 1, 0)
		},
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
}

package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
)

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

package storetest

import (
	"context"
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

package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
)

// workers is how many goroutines call at once: more than a pool has connections.
const workers = 64

// concurrently calls work in n goroutines at once and returns how many of the
// calls reported true.
func (f *fixture) concurrently(n int, work func(i int) bool) int64 {
	f.Helper()
	var passed atomic.Int64
	var done sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		done.Go(func() {
			<-start
			if work(i) {
				passed.Add(1)
			}
		})
	}
	close(start)
	done.Wait()
	return passed.Load()
}

// allowed reports whether AllowN passes; unlike allow it may be called from any
// goroutine.
func (f *fixture) allowed(l *limiter.Limiter, key string, n int64) bool {
	r, err := l.AllowN(context.Background(), key, n)
	if err != nil {
		f.Errorf("AllowN(%d): %v", n, err)
	}
	return r.Allowed
}

// refunds reports whether RefundOf, or Refund, gives anything back. Like allowed, it may be
// called from any goroutine.
func (f *fixture) refunds(l *limiter.Limiter, key string, n int64, res limiter.Result, of bool) (gave bool) {
	var err error
	if of {
		gave, err = l.RefundOf(context.Background(), key, n, res)
	} else {
		gave, err = l.Refund(context.Background(), key, n)
	}
	if err != nil {
		f.Errorf("a refund of %d: %v", n, err)
	}
	return gave
}

var concurrencyCases = []testCase{
	{
		"first requests at once on a cold key",
		"of n concurrent first requests on a key exactly as many pass as the policy admits, and none is an error",
		forEach(every(10, time.Hour, time.Hour), func(f *fixture, l *limiter.Limiter) {
			for key := range 4 {
				for cost, want := range map[int64]int64{1: 10, 3: 3, 4: 2, 10: 1} {
					if got := f.concurrently(workers, func(int) bool {
						return f.allowed(l, fmt.Sprint(key, "-", cost), cost)
					}); got != want {
						f.Errorf("%d requests of cost %d passed, want %d of %d", got, cost, want, workers)
					}
				}
			}
			if got := f.concurrently(8, func(int) bool { return f.allowed(l, "few", 1) }); got != 8 {
				f.Errorf("%d of 8 passed under a limit of 10", got)
			}
		}),
	},
	{
		"requests at once by the store's own clock",
		"concurrent requests on the store's clock admit exactly what the policy admits",
		func(f *fixture) {
			// Far more time to a token, or to the window's end, than the case takes. Package borrow takes none of 15 tokens ahead.
			b := f.on(f.store, f.prefix+"b", bucket(15, 100*time.Hour))
			w := f.on(f.store, f.prefix+"w", window(15, 9_999*time.Hour))
			f.passes(w, "edge", 1)
			if f.peek(w, "edge").ResetAfter < time.Hour {
				w = f.on(f.store, f.prefix+"w", window(15, 8_888*time.Hour))
			}
			for _, l := range []*limiter.Limiter{b, w} {
				for key := range 3 {
					if got := f.concurrently(workers, func(int) bool {
						return f.allowed(l, fmt.Sprint(key), 1)
					}); got != 15 {
						f.Errorf("%+v: %d of %d passed, want 15", l.Policy(), got, workers)
					}
				}
			}
		},
	},
	{
		"time that moves while requests are under way",
		"concurrent requests whose clocks differ and run on admit no more than the policy does over the time that they saw",
		func(f *fixture) {
			const rounds = 12
			p := bucket(5, s)
			passed := int64(0)
			for round := range rounds {
				passed += f.concurrently(24, func(i int) bool {
					// The clocks are up to 28 ms apart, because statements read them out of order.
					now := epoch.Add(time.Duration(round)*400*ms + time.Duration(i%8)*4*ms)
					l, err := limiter.New(f.store, f.prefix+"l", p, limiter.WithTimeout(timeLimit),
						limiter.WithClock(func() time.Time { return now }))
					if err != nil {
						f.Errorf("New: %v", err)
						return false
					}
					return f.allowed(l, "k", 1)
				})
			}
			last := (rounds-1)*400*ms + 28*ms
			if most := 5 + int64(last/s); passed < 5 || passed > most {
				f.Errorf("%d passed in %v, want 5 to %d", passed, last, most)
			}
		},
	},
	{
		"a policy that changes under load",
		"two versions of a policy that are used at once admit together at most the larger of both",
		func(f *fixture) {
			for name, ps := range map[string][2]limiter.Policy{
				"b": {bucket(20, time.Hour), bucket(12, time.Hour)},
				"r": {bucket(20, time.Hour), bucket(12, 7*time.Minute)},
				"w": {window(20, time.Hour), window(12, time.Hour)},
			} {
				ls := []*limiter.Limiter{f.limiter(name, ps[0]), f.limiter(name, ps[1])}
				for key := range 3 {
					got := f.concurrently(workers, func(i int) bool {
						return f.allowed(ls[i%2], fmt.Sprint(key), 1)
					})
					for _, l := range ls {
						for f.allow(l, fmt.Sprint(key), 1).Allowed {
							got++
						}
					}
					if got < 12 || got > 20 {
						f.Errorf("%s: %d passed under %+v and %+v at once, want 12 to 20", name, got, ps[0], ps[1])
					}
				}
			}
		},
	},
	{
		"two versions of a policy meet on a busy key",
		"nobody is refused while there is enough for all, however often a row is lost to others",
		func(f *fixture) {
			for name, ps := range map[string][2]limiter.Policy{
				"b": {bucket(100_000, time.Hour), bucket(120_000, time.Hour)},
				"w": {window(100_000, time.Hour), window(120_000, time.Hour)},
			} {
				ls := []*limiter.Limiter{f.limiter(name, ps[0]), f.limiter(name, ps[1])}
				const each = 4
				got := f.concurrently(workers, func(i int) bool {
					for range each {
						if !f.allowed(ls[i%2], "k", 1) {
							return false
						}
					}
					return true
				})
				if got != workers {
					f.Errorf("%s: %d of %d callers got all of their %d requests through", name, got, workers, each)
				}
			}
		},
	},
}

// mixed calls a limiter of 50 in parallel on one hot, some warm and many cold
// keys, and checks the total of each.
func (f *fixture) mixed(l *limiter.Limiter) {
	f.Helper()
	const perWorker = 15
	var mu sync.Mutex
	asked, got := map[string]int64{}, map[string]int64{}
	f.concurrently(workers, func(i int) bool {
		for j := range perWorker {
			key := "hot"
			switch {
			case j%3 == 1:
				key = fmt.Sprint("warm", (i+j)%8)
			case j%3 == 2:
				key = fmt.Sprint("cold", i, "-", j)
			}
			passed := f.allowed(l, key, 1)
			mu.Lock()
			asked[key]++
			if passed {
				got[key]++
			}
			mu.Unlock()
		}
		return true
	})
	for key, n := range asked {
		if want := min(n, 50); got[key] != want {
			f.Errorf("%T: %d of %d passed on %s, want %d", l.Policy(), got[key], n, key, want)
		}
	}
}

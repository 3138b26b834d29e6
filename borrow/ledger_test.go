package borrow

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// ledger counts what passed in each 10 ms.
type ledger struct {
	mu    sync.Mutex
	begin time.Time
	bins  []int64
}

const bin = 10 * time.Millisecond

func (g *ledger) passed(cost int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := int(time.Since(g.begin) / bin)
	for len(g.bins) <= i {
		g.bins = append(g.bins, 0)
	}
	g.bins[i] += cost
}

// check compares what passed between each pair of bins with what may pass in that time and more.
func (g *ledger) check(t *testing.T, p limiter.TokenBucket, more time.Duration) {
	t.Helper()
	for i := range g.bins {
		sum := int64(0)
		for j, n := range g.bins[i:] {
			sum += n
			if most := p.Capacity + int64((time.Duration(j+1)*bin+more)/p.Step()) + 1; sum > most {
				t.Fatalf("%d tokens in %v from %v on; want at most %d", sum, time.Duration(j+1)*bin, time.Duration(i)*bin, most)
			}
		}
	}
}

// During any time t, all processes together take at most Capacity + (t+ttl)·Refill/Interval.
func TestBound(t *testing.T) {
	const processes, callers, span, ttl = 4, 6, 20 * time.Second, 100 * time.Millisecond
	for what, p := range map[string]limiter.TokenBucket{
		"overloaded":      {Capacity: 400, Refill: 2000, Interval: time.Second},
		"often full":      {Capacity: 200, Refill: 4000, Interval: time.Second},
		"slow and large":  {Capacity: 3000, Refill: 20, Interval: time.Second},
		"hardly borrowed": {Capacity: 40, Refill: 100, Interval: time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			synctest.Test(t, func(t *testing.T) {
				slow := &inner{Store: memory.New(), after: func(limiter.Op) error {
					time.Sleep(time.Duration(rand.IntN(4_000)) * time.Microsecond)
					return nil
				}}
				g := &ledger{begin: time.Now()}
				var sum Stats
				var all sync.WaitGroup
				for process := range processes {
					all.Go(func() {
						r := rand.New(rand.NewPCG(seed, uint64(process)))
						for time.Since(g.begin) < span { // each round is a new process
							stats := runProcess(t, slow, p, g, r.Uint64(), callers, ttl, time.Duration(r.IntN(4_000))*time.Millisecond)
							g.mu.Lock()
							sum.Local, sum.GivenBack, sum.Lost = sum.Local+stats.Local, sum.GivenBack+stats.GivenBack, sum.Lost+stats.Lost
							g.mu.Unlock()
						}
					})
				}
				all.Wait()
				g.check(t, p, ttl)
				t.Logf("%+v", sum)
				if sum.Local == 0 || sum.GivenBack == 0 {
					t.Errorf("%+v; want some of each", sum)
				}
			})
		})
	}
}

// runProcess runs callers of one process for a time, which it ends by Shutdown, or by a crash.
func runProcess(t *testing.T, store limiter.Store, p limiter.TokenBucket, g *ledger, seed uint64, callers int, ttl, span time.Duration) Stats {
	s, err := New(store, 100, ttl)
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(s, "test", p)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(caller)))
			for time.Since(begin) < span {
				for range r.IntN(60) {
					cost := 1 + r.Int64N(3)
					if res, err := l.AllowN(t.Context(), "k", cost); err != nil {
						t.Error(err)
					} else if res.Allowed {
						g.passed(cost)
					}
					time.Sleep(time.Duration(r.IntN(3_000)) * time.Microsecond)
				}
				if r.IntN(10) == 0 {
					time.Sleep(time.Duration(r.IntN(1_000)) * time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	if seed%4 > 0 {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	return s.Stats()
}


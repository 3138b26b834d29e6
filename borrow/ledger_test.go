package borrow

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/storetest"
)

// ledger counts what passed in each 10 ms.
type ledger struct {
	begin            time.Time
	bins             []atomic.Int64
	local, givenBack atomic.Int64
}

const bin = 10 * time.Millisecond

// check compares what passed between each pair of bins with what may pass in that time and more. A bin lowers
// by its own time what passed before it too much.
func (g *ledger) check(t *testing.T, p limiter.TokenBucket, more time.Duration) {
	t.Helper()
	step, excess, most := p.Step(), time.Duration(0), time.Duration(0)
	for i := range g.bins {
		excess = max(excess, 0) + time.Duration(g.bins[i].Load())*step - bin
		most = max(most, excess)
	}
	if most > time.Duration(p.Capacity+1)*step+more {
		t.Errorf("%d tokens more than the refill; want at most %d, and those of %v", most/step, p.Capacity, more)
	}
}

// During any time t, all processes together take at most Capacity + (t+ttl)·Refill/Interval.
func TestBound(t *testing.T) {
	const processes, ttl = 4, 100 * time.Millisecond
	for _, c := range []struct {
		what   string
		policy limiter.TokenBucket
		idle   time.Duration // between bursts
	}{
		{"overloaded", limiter.TokenBucket{Capacity: 400, Refill: 2000, Interval: time.Second}, time.Second},
		{"often full", limiter.TokenBucket{Capacity: 200, Refill: 4000, Interval: time.Second}, time.Second},
		{"slow", limiter.TokenBucket{Capacity: 3000, Refill: 20, Interval: time.Second}, time.Second},
		{"hardly borrowed", limiter.TokenBucket{Capacity: 40, Refill: 100, Interval: time.Second}, time.Second},
		{"full before each burst", limiter.TokenBucket{Capacity: 2000, Refill: 40, Interval: time.Second}, time.Minute},
	} {
		p := c.policy
		t.Run(c.what, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			synctest.Test(t, func(t *testing.T) {
				slow := &inner{Store: memory.New(), after: func(limiter.Op) error {
					<-time.After(time.Duration(rand.IntN(4_000)) * time.Microsecond)
					return nil
				}}
				g := &ledger{begin: time.Now(), bins: make([]atomic.Int64, 25*c.idle/bin)}
				var all sync.WaitGroup
				for process := range processes {
					all.Go(func() {
						r := rand.New(rand.NewPCG(seed, uint64(process)))
						for time.Since(g.begin) < 20*c.idle { // each round is a new process
							runProcess(t, slow, p, g, r.Uint64(), ttl, c.idle)
						}
					})
				}
				all.Wait()
				g.check(t, p, ttl)
				if local, givenBack := g.local.Load(), g.givenBack.Load(); local == 0 || givenBack == 0 && c.idle > time.Second {
					t.Errorf("%d tokens from memory and %d given back; want some of each", local, givenBack)
				}
			})
		})
	}
}

// runProcess runs the callers of one process for up to four bursts. They may end it by Shutdown, or by a
// crash.
func runProcess(t *testing.T, store limiter.Store, p limiter.TokenBucket, g *ledger, seed uint64, ttl, idle time.Duration) {
	s, err := New(store, 100, ttl)
	testenv.Must(t, err)
	l, err := limiter.New(s, "test", p)
	testenv.Must(t, err)
	end := time.Now().Add(time.Duration(seed % 4 * uint64(idle)))
	var all sync.WaitGroup
	for caller := range 6 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(caller)))
			for once := true; once || time.Now().Before(end); once = false {
				for range r.IntN(100) {
					cost := 1 + r.Int64N(3)
					if res, err := l.AllowN(t.Context(), "k", cost); err != nil {
						t.Error(err)
					} else if res.Allowed {
						g.bins[time.Since(g.begin)/bin].Add(cost)
					}
					<-time.After(time.Duration(r.IntN(2_000)) * time.Microsecond)
				}
				if idle > time.Second || r.IntN(5) == 0 { // then begin with the others
					<-time.After(idle - time.Since(g.begin)%idle)
				}
			}
		})
	}
	all.Wait()
	if seed%3 > 0 {
		testenv.ErrorIs(t, s.Shutdown(t.Context()), nil)
	}
	stats := s.Stats()
	g.local.Add(stats.Local)
	g.givenBack.Add(stats.GivenBack)
}

func open(t *testing.T, inner limiter.Store) *Store {
	t.Helper()
	s, err := New(inner, 2, time.Second)
	testenv.Must(t, err)
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) limiter.Store { return open(t, memory.New()) })
	storetest.RunClock(t, func(t *testing.T) (limiter.Store, func(time.Duration)) {
		var ahead atomic.Int64
		inner := memory.New(memory.WithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
		return open(t, inner), func(d time.Duration) { ahead.Store(int64(d)) }
	})
}

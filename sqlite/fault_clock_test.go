package sqlite_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

// steps are lengths of clock steps: a leap second, an hour of a time zone, ten years of an empty battery.
var steps = []time.Duration{
	time.Nanosecond, time.Millisecond, time.Second, limiter.ClockTolerance, limiter.ClockTolerance + 1, 5 * time.Second,
	time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour, 10 * 365 * 24 * time.Hour,
}

// stepped is a Store whose clock stands still between its steps.
type stepped struct {
	*testing.T
	store *sqlite.Store
	now   atomic.Int64
}

func newStepped(t *testing.T) *stepped {
	s := &stepped{T: t, store: openFile(t)}
	s.now.Store(t0.UnixNano())
	s.store.SetClock(func() time.Time { return time.Unix(0, s.now.Load()) })
	return s
}

// step moves the clock at random, and stays within twenty years.
func (s *stepped) step(random *rand.Rand) time.Duration {
	d := steps[random.IntN(len(steps))]
	switch off := time.Duration(s.now.Load() - t0.UnixNano()); {
	case off > 10*365*24*time.Hour, off > -10*365*24*time.Hour && random.IntN(2) == 0:
		d = -d
	}
	s.now.Add(int64(d))
	return d
}

// takes takes until it is refused.
func (s *stepped) takes(policy limiter.Policy) (n int64) {
	s.Helper()
	op := takeOf("l", "key", policy, 1)
	op.At = 0
	for {
		state, err := s.store.Do(s.Context(), op)
		must(s, err)
		if !state.Took {
			return n
		}
		n++
	}
}

func TestFaultsOfClocks(t *testing.T) {
	t.Parallel()
	bucket := limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: time.Second}
	window := limiter.FixedWindow{Limit: 5, Window: 10 * time.Second}
	for _, c := range []struct {
		name   string
		policy limiter.Policy
		gained func(from, to int64) int64 // the most that a step forward may give
		whole  time.Duration              // after which the limit is whole again
	}{
		{"bucket", bucket, func(from, to int64) int64 { return min(5, (to-from)/int64(time.Second)+1) }, 5 * time.Second},
		{"window", window, func(from, to int64) int64 {
			if w := int64(window.Window); from/w == to/w {
				return 0
			}
			return 5
		}, 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStepped(t)
			random := rand.New(rand.NewPCG(1, 0))
			s.takes(c.policy)
			var forwards, backwards int
			for range 500 {
				from := s.now.Load()
				d := s.step(random)
				got, most := s.takes(c.policy), int64(0)
				if d > 0 {
					most = c.gained(from, s.now.Load())
					forwards++
				} else {
					backwards++
				}
				if got > most {
					t.Fatalf("a step of %v admitted %d, want %d at most", d, got, most)
				}
				if random.IntN(4) > 0 {
					continue
				}
				// No caller is locked out: after the tolerance, time counts from here.
				s.now.Add(int64(c.whole + limiter.ClockTolerance))
				if got := s.takes(c.policy); got != 5 {
					t.Fatalf("%v after a step of %v: admitted %d, want all 5", c.whole+limiter.ClockTolerance, d, got)
				}
			}
			t.Logf("%d steps forwards, %d backwards", forwards, backwards)
		})
	}
}

// Here the clock also steps between the reading of a row and that of the clock.
func TestFaultsOfClocksUnderTraffic(t *testing.T) {
	skipShort(t, "it waits for hundreds of steps under traffic")
	t.Parallel()
	s := newStepped(t)
	bucket := limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: time.Second}
	var admitted, most atomic.Int64
	most.Store(bucket.Capacity)
	var done atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !done.Load() && !t.Failed() {
				admitted.Add(s.takes(bucket))
			}
		})
	}
	random := rand.New(rand.NewPCG(2, 0))
	for range 150 {
		if d := s.step(random); d > 0 {
			most.Add(min(bucket.Capacity, int64(d/time.Second)+1))
		}
		admitted.Add(s.takes(bucket)) // and no other caller still waits for what the step brought
	}
	done.Store(true)
	all.Wait()
	if admitted.Load() > most.Load() {
		t.Errorf("admitted %d, want %d at most", admitted.Load(), most.Load())
	}
	t.Logf("admitted %d of %d", admitted.Load(), most.Load())
}

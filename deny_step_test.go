package limiter_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// backStep is a step back of a store's clock, and an operation on the key before the step or right after
// it.
type backStep struct {
	policy    limiter.Policy
	maxAge    time.Duration
	at, by    time.Duration // when, counted from the first request, and how far
	remote    bool          // the local clock does not make the step
	operation func(t *testing.T, l *limiter.Limiter) error
	operateAt time.Duration
	byOther   bool // a limiter without a cache carries out the operation
}

// wait returns how long after the step the key lets a request pass again, if a client asks every
// 100 ms.
func (s *backStep) wait(t *testing.T, opts ...limiter.Option) time.Duration {
	const pause = 100 * time.Millisecond
	elapsed, back := time.Duration(0), time.Duration(0)
	store := memory.New(memory.WithClock(func() time.Time { return time.Unix(0, start).Add(elapsed - back) }))
	l := newLimiter(t, store, s.policy, opts...)
	operator := l
	if s.byOther {
		operator = newLimiter(t, store, s.policy)
	}
	if opts != nil {
		l.SetDenyClock(func() (wall, mono int64) {
			if s.remote {
				return start + int64(elapsed), int64(elapsed)
			}
			return start + int64(elapsed-back), int64(elapsed)
		})
	}
	for ; elapsed < time.Hour; elapsed += pause {
		if elapsed == s.at {
			back = s.by
		}
		if elapsed == s.operateAt {
			must(t, s.operation(t, operator))
		}
		r, err := l.Allow(t.Context(), "k")
		must(t, err)
		if r.Allowed && elapsed >= s.at {
			return elapsed - s.at
		}
	}
	t.Fatal("the key passes no more")
	return 0
}

func TestDenyCacheAfterStepBack(t *testing.T) {
	t.Parallel()
	const span = 10 * time.Second
	policies := []limiter.Policy{limiter.TokenBucket{Capacity: 2, Refill: 2, Interval: span}, limiter.FixedWindow{Limit: 2, Window: span}}
	operations := map[string]func(t *testing.T, l *limiter.Limiter) error{
		"nothing": func(*testing.T, *limiter.Limiter) error { return nil },
		"Charge": func(t *testing.T, l *limiter.Limiter) error {
			_, err := l.Charge(t.Context(), "k", 1)
			return err
		},
		"Block": func(t *testing.T, l *limiter.Limiter) error { return l.Block(t.Context(), "k", time.Second) },
		"AllowAll": func(t *testing.T, l *limiter.Limiter) error {
			_, err := limiter.AllowAll(t.Context(), limiter.Claim{Limiter: l, Key: "k"}, limiter.Claim{Limiter: l, Key: "other"})
			return err
		},
	}
	for name, operation := range operations {
		for _, remote := range []bool{false, true} {
			where := map[bool]string{false: " on a local clock", true: " on a remote clock"}[remote]
			t.Run(name+where, func(t *testing.T) {
				t.Parallel()
				seed := rand.Uint64()
				rnd := rand.New(rand.NewPCG(seed, 1))
				for range 500 {
					s := backStep{
						policy: policies[rnd.IntN(2)], maxAge: []time.Duration{time.Second, time.Minute}[rnd.IntN(2)],
						at: time.Duration(rnd.IntN(90)) * 100 * time.Millisecond, by: time.Duration(rnd.IntN(100)) * 101 * time.Millisecond,
						remote: remote, operation: operation, byOther: !remote && rnd.IntN(2) == 0,
					}
					if s.operateAt = s.at; !remote && s.at > 0 {
						s.operateAt = time.Duration(rnd.Int64N(int64(s.at/100/time.Millisecond))) * 100 * time.Millisecond
					}
					with, without := s.wait(t, limiter.WithDenyCache(1, s.maxAge)), s.wait(t)
					most := without
					if unseen := name == "nothing" || name == "AllowAll"; remote && unseen {
						most = span + limiter.ClockTolerance + s.maxAge
					}
					if with > most {
						t.Fatalf("seed %d: %+v: waits %v, want at most %v; without the cache it waits %v", seed, s, with, most, without)
					}
				}
			})
		}
	}
}

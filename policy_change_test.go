package limiter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

// A deny cache forgets a refusal if the key is asked about under another policy, which may convert the row.
func TestDenyCacheOfAChangedPolicy(t *testing.T) {
	minute := limiter.FixedWindow{Limit: 5, Window: time.Minute}
	counting := minute
	counting.CountRejected = true
	for name, c := range map[string]struct {
		override limiter.Policy
		ask      func(l *limiter.Limiter, ctx context.Context, key string) (limiter.Result, error)
	}{
		"a look":                      {minute, (*limiter.Limiter).Peek},
		"a take whose refusals count": {counting, (*limiter.Limiter).Allow},
	} {
		t.Run(name, func(t *testing.T) {
			now, policy := time.Unix(0, start+1), limiter.Policy(nil)
			l := newLimiter(t, memory.New(), limiter.FixedWindow{Limit: 5, Window: 24 * time.Hour}, clockOf(&now),
				limiter.WithDenyCache(10, time.Hour), limiter.WithPolicyFor(func(context.Context, string) (limiter.Policy, error) { return policy, nil }))
			must(t, testenv.ErrorOf(l.AllowN(t.Context(), "k", 5)))
			mustAllow(t, l, false)
			now, policy = now.Add(time.Second), c.override
			must(t, testenv.ErrorOf(c.ask(l, t.Context(), "k")))
			now, policy = now.Add(time.Minute), nil
			mustAllow(t, l, true)
		})
	}
}

// One decision has one policy for each key.
func TestAllowAllChoosesThePolicyOnce(t *testing.T) {
	calls := int64(0)
	l := newLimiter(t, memory.New(), limiter.PerHour(10), limiter.WithPolicyFor(func(context.Context, string) (limiter.Policy, error) {
		calls++
		return limiter.PerHour(10 * calls), nil
	}))
	r, err := limiter.AllowAll(t.Context(), limiter.Claim{Limiter: l, Key: "k"}, limiter.Claim{Limiter: l, Key: "other"}, limiter.Claim{Limiter: l, Key: "k", Cost: 3})
	if err != nil || !r.Allowed || calls != 2 || r.Each[1].Remaining != 19 || r.Each[2].Remaining != 6 {
		t.Errorf("%+v, %v after %d calls, want one for each key", r, err, calls)
	}
}

// The time that the store takes is missing for the wait.
func TestWaitOnASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		l := newLimiter(t, slowStore{store, 200 * time.Millisecond}, limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 1200 * time.Millisecond})
		mustAllow(t, newLimiter(t, store, l.Policy()), true)
		ctx, cancel := context.WithTimeout(t.Context(), 1100*time.Millisecond)
		defer cancel()
		if err := l.Wait(ctx, "k"); !errors.Is(err, limiter.ErrExceedsMaxWait) || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			t.Errorf("Wait: %v, want ErrExceedsMaxWait before the deadline", err)
		}
		<-time.After(time.Second)
		mustAllow(t, l, true) // the booking was canceled
	})
}

type slowStore struct {
	*memory.Store
	takes time.Duration
}

func (s slowStore) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	<-time.After(s.takes)
	return s.Store.Do(ctx, op)
}

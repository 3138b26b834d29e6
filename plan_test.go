package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

// plans is the function of WithPolicyFor, which counts its calls.
type plans struct {
	calls  int
	key    string
	policy limiter.Policy
	err    error
}

func (p *plans) option() limiter.Option {
	return limiter.WithPolicyFor(func(_ context.Context, key string) (limiter.Policy, error) {
		p.calls++
		p.key = key
		return p.policy, p.err
	})
}

func TestWithPolicyForRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(t.Context())
	leave()
	cause := errors.New("the table of plans is locked")
	bucket := limiter.PerHour(5)
	for _, c := range []struct {
		what    string
		ctx     context.Context
		plans   plans
		classes []error
		calls   int
	}{
		{"a window for a bucket", t.Context(), plans{policy: limiter.FixedWindow{Limit: 5, Window: time.Hour}}, []error{limiter.ErrInvalid}, 1},
		{"a policy that is not valid", t.Context(), plans{policy: limiter.TokenBucket{Capacity: -1, Refill: 1, Interval: time.Hour}}, []error{limiter.ErrInvalid}, 1},
		{"a pointer", t.Context(), plans{policy: &bucket}, []error{limiter.ErrInvalid}, 1},
		{"a wrapped policy", t.Context(), plans{policy: struct{ limiter.Policy }{bucket}}, []error{limiter.ErrInvalid}, 1},
		{"an error", t.Context(), plans{err: cause}, []error{limiter.ErrNoPolicy, cause}, 1},
		{"an error with a policy", t.Context(), plans{policy: bucket, err: cause}, []error{limiter.ErrNoPolicy, cause}, 1},
		{"a store's error", t.Context(), plans{err: fmt.Errorf("%w: %w", limiter.ErrNotApplied, cause)}, []error{limiter.ErrNoPolicy, limiter.ErrNotApplied}, 1},
		{"an unknown outcome", t.Context(), plans{err: limiter.ErrOutcomeUnknown}, []error{limiter.ErrNoPolicy}, 1},
		{"a caller who has left", gone, plans{err: cause}, []error{limiter.ErrCanceled, context.Canceled}, 0},
	} {
		for name, fail := range failurePolicies() {
			store, p := &spyStore{Store: memory.New()}, c.plans
			l := newLimiter(t, store, bucket, p.option(), fail)
			for i, err := range []error{
				refusal(l.Allow(c.ctx, "k")), refusal(l.AllowUpTo(c.ctx, "k", 1)), refusal(l.Charge(c.ctx, "k", 1)), refusal(l.Peek(c.ctx, "k")),
				testenv.ErrorOf(l.Reserve(c.ctx, "k", 1, 0)), l.Block(c.ctx, "k", 1), l.Wait(c.ctx, "k"),
			} {
				for _, class := range c.classes {
					if !errors.Is(err, class) || limiter.StoreFailed(err) {
						t.Errorf("%s: %s: method %d: %v, want %v, which is not a failure of the store", c.what, name, i, err, class)
					}
				}
			}
			if store.calls != 0 || p.calls != 7*c.calls {
				t.Errorf("%s: %s: %d calls of the store and %d of f, want 0 and %d", c.what, name, store.calls, p.calls, 7*c.calls)
			}
		}
	}
}

func TestWithPolicyForAfterLeaving(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	l := newLimiter(t, memory.New(), limiter.PerHour(5), limiter.WithPolicyFor(func(ctx context.Context, _ string) (limiter.Policy, error) {
		leave()
		return nil, ctx.Err()
	}))
	if r, err := l.Allow(ctx, "k"); r.Allowed || !errors.Is(err, limiter.ErrCanceled) || errors.Is(err, limiter.ErrNoPolicy) {
		t.Errorf("Allow = %+v, %v, want ErrCanceled", r, err)
	}
}

func TestACachedRefusalCountsOnlyForItsPolicy(t *testing.T) {
	t.Parallel()
	p := &plans{}
	now := time.Unix(0, start)
	d := newDenying(t, limiter.PerHour(1), p.option(), clockOf(&now))
	d.fill("k")
	p.policy = limiter.PerHour(1) // an equal one
	d.expect("k", 1, false, cache)
	p.policy = limiter.PerSecond(60)
	d.expect("k", 1, false, store) // upgraded: what is left carries over
	d.expect("k", 1, false, cache)
	now = now.Add(time.Second / 60)
	p.policy = nil
	d.expect("k", 1, false, store) // and back
	p.policy = limiter.PerSecond(60)
	now = now.Add(time.Second / 60)
	d.expect("k", 1, true, store)

	w := newDenying(t, limiter.FixedWindow{Limit: 1, Window: time.Hour}, p.option(), clockOf(&now))
	p.policy = nil
	w.fill("k")
	p.policy = limiter.FixedWindow{Limit: 1, Window: time.Hour, CountRejected: true}
	for used := range int64(3) { // its refusals count, so the store must see them
		if r := w.expect("k", 1, false, store); r.Used != used+2 {
			t.Errorf("a window that counts refusals: %+v, want %d used", r, used+2)
		}
	}
}

func TestCancelUsesThePolicyOfTheBooking(t *testing.T) {
	t.Parallel()
	booked := limiter.PerHour(7)
	p, store := &plans{policy: booked}, &spyStore{Store: memory.New()}
	l := newLimiter(t, store, limiter.PerHour(2), p.option(), fixed())
	r, err := l.Reserve(t.Context(), "k", 7, 0)
	if err != nil || !r.Allowed || r.Policy != booked {
		t.Fatalf("Reserve: %+v, %v", r, err)
	}
	p.policy = limiter.PerHour(3)
	if r, err := l.AllowN(t.Context(), "k", 4); !errors.Is(err, limiter.ErrExceedsCapacity) || r.Policy != nil {
		t.Errorf("a cost above the chosen policy: %+v, %v, want ErrExceedsCapacity", r, err)
	}
	if got := l.Policy(); got != limiter.PerHour(2) {
		t.Errorf("Policy = %+v, want that of New", got)
	}
	if err := r.Cancel(t.Context()); err != nil || store.ops[1].Kind != limiter.OpCancel ||
		store.ops[1].Policy != booked || store.ops[1].Timeout != 250*time.Millisecond {
		t.Errorf("Cancel: %v, sent as %+v, want the policy %+v", err, store.ops[1], booked)
	}
	p.policy = booked
	if r, err := l.AllowN(t.Context(), "k", 7); err != nil || !r.Allowed {
		t.Errorf("after Cancel: %+v, %v, want all of it back", r, err)
	}
}

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

func TestOnKeepsNamePolicyAndOptions(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, start)
	var seen observed
	l := newLimiter(t, memory.New(), limiter.PerHour(1),
		clockOf(&now), limiter.WithKeyDigest([]byte("secret")), limiter.WithTimeout(7*time.Second),
		seen.option(), limiter.FailOpen())
	mustAllow(t, l, true)
	spy := &spyStore{Store: memory.New()}
	on := l.On(spy)
	mustAllow(t, on, true) // its own state
	mustAllow(t, on, false)
	mustAllow(t, l, false)
	if on.Name() != "l" || on.Policy() != l.Policy() || len(seen) != 4 {
		t.Errorf("%q, %+v, %d decisions seen, want what New was given, and 4", on.Name(), on.Policy(), len(seen))
	}
	if op := spy.ops[1]; op.Name != "l" || op.Key == "k" || op.At != start || op.Timeout != 7*time.Second {
		t.Errorf("the operation is %+v, want the name, digest, clock and timeout of the limiter", op)
	}
	mustAllow(t, l.On(&spyStore{err: limiter.ErrNotApplied}), true) // by FailOpen
}

func TestOnHasItsOwnDenyCache(t *testing.T) {
	t.Parallel()
	d := newDenying(t, limiter.PerDay(1))
	d.fill("k")
	other := &spyStore{Store: memory.New()}
	on := denying{d.On(other), t, other}
	on.fill("k") // the other store has room
	must(t, on.Reset(t.Context(), "k"))
	on.expect("k", 1, true, store)
	d.expect("k", 1, false, cache)
	tx := denying{d.On(inTransaction{memory.New()}), t, other}
	tx.expect("k", 1, true, store)
	for range 3 { // a refusal of a transaction may be rolled back
		tx.expect("k", 1, false, store)
	}
	again := denying{tx.On(memory.New()), t, other}
	again.fill("k")
}

type storeMap map[string]limiter.Row

func (storeMap) Do(context.Context, limiter.Op) (limiter.State, error) { panic("a nil map was asked") }

func TestOnNoStoreIsInvalid(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l := newLimiter(t, memory.New(), limiter.PerHour(5), limiter.FailLocal(memory.New()), limiter.WithDenyCache(5, 0))
	for name, store := range map[string]limiter.Store{"nil": nil, "a nil pointer": (*memory.Store)(nil), "a nil function": storeFunc(nil), "a nil map": storeMap(nil)} {
		on := l.On(store)
		for i, err := range []error{
			refusal(on.Allow(ctx, "k")), refusal(on.AllowUpTo(ctx, "k", 1)), refusal(on.Charge(ctx, "k", 1)), refusal(on.Peek(ctx, "k")),
			testenv.ErrorOf(on.Reserve(ctx, "k", 1, 0)), testenv.ErrorOf(limiter.AllowAll(ctx, claims(on)...)), testenv.ErrorOf(on.Refund(ctx, "k", 1)),
			on.Reset(ctx, "k"), on.Wait(ctx, "k"), on.Block(ctx, "k", 1),
		} {
			if !errors.Is(err, limiter.ErrInvalid) || limiter.StoreFailed(err) {
				t.Errorf("%s: method %d: %v, want ErrInvalid", name, i, err)
			}
		}
		mustAllow(t, on.On(memory.New()), true)
	}
}

func TestOnAllocatesLittle(t *testing.T) {
	store := memory.New()
	for name, opts := range map[string][]limiter.Option{
		"plain": nil, "with a deny cache": {limiter.WithDenyCache(1000, time.Minute)}, "with a digest": {limiter.WithKeyDigest([]byte("secret")), limiter.FailOpen()},
	} {
		l := newLimiter(t, store, limiter.PerHour(5), opts...)
		var on *limiter.Limiter
		for _, s := range []limiter.Store{store, nil} {
			if n := testing.AllocsPerRun(100, func() { on = l.On(s) }); n > 2 && !testenv.Race || on == nil {
				t.Errorf("%s: On(%v) allocates %v times, want at most 2", name, s, n)
			}
		}
	}
}

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
		testenv.Equal(t, w.expect("k", 1, false, store).Used, used+2, "used of a window that counts refusals")
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
	testenv.Equal[limiter.Policy](t, l.Policy(), limiter.PerHour(2), "Policy, that of New")
	if err := r.Cancel(t.Context()); err != nil || store.ops[1].Kind != limiter.OpCancel ||
		store.ops[1].Policy != booked || store.ops[1].Timeout != 250*time.Millisecond {
		t.Errorf("Cancel: %v, sent as %+v, want the policy %+v", err, store.ops[1], booked)
	}
	p.policy = booked
	if r, err := l.AllowN(t.Context(), "k", 7); err != nil || !r.Allowed {
		t.Errorf("after Cancel: %+v, %v, want all of it back", r, err)
	}
}

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
			now, p := time.Unix(0, start+1), &plans{}
			l := newLimiter(t, memory.New(), limiter.FixedWindow{Limit: 5, Window: 24 * time.Hour},
				clockOf(&now), p.option(), limiter.WithDenyCache(10, time.Hour))
			must(t, testenv.ErrorOf(l.AllowN(t.Context(), "k", 5)))
			mustAllow(t, l, false)
			now, p.policy = now.Add(time.Second), c.override
			must(t, testenv.ErrorOf(c.ask(l, t.Context(), "k")))
			now, p.policy = now.Add(time.Minute), nil
			mustAllow(t, l, true)
		})
	}
}

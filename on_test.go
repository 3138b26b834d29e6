package limiter_test

import (
	"context"
	"errors"
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
	if r, err := l.On(&spyStore{err: limiter.ErrNotApplied}).Allow(t.Context(), "k"); err != nil || !r.Allowed || r.Source != limiter.SourcePolicy {
		t.Errorf("FailOpen on another store: %+v, %v", r, err)
	}
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
		if n := testing.AllocsPerRun(100, func() { on = l.On(store) }); n > 2 && !testenv.Race {
			t.Errorf("%s: On allocates %v times, want at most 2", name, n)
		}
		if n := testing.AllocsPerRun(100, func() { on = l.On(nil) }); n > 2 && !testenv.Race || on == nil {
			t.Errorf("%s: On(nil) allocates %v times, want at most 2", name, n)
		}
	}
}

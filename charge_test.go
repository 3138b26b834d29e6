package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// failurePolicies are all failure policies.
func failurePolicies() map[string]limiter.Option {
	return map[string]limiter.Option{"closed": limiter.FailClosed(), "open": limiter.FailOpen(), "local": limiter.FailLocal(memory.New())}
}

func TestNoFailurePolicyForChargeOrBlock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, fail := range failurePolicies() {
		for _, class := range []error{
			limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, errors.Join(limiter.ErrNotApplied, limiter.ErrKeyBusy),
		} {
			store := &flakyStore{Store: memory.New(), err: class}
			seen := 0
			l := newLimiter(t, store, limiter.PerHour(5), fail, limiter.WithObserver(func(context.Context, limiter.Decision) { seen++ }))
			for n, kind := range map[int64]limiter.OpKind{0: limiter.OpLook, 3: limiter.OpCharge} {
				store.ops = nil
				r, err := l.Charge(ctx, "k", n)
				if !errors.Is(err, class) || r.Visible() != (limiter.Result{Source: limiter.SourcePolicy}) {
					t.Errorf("%s: Charge(%d) = %+v, %v, want %v", name, n, r, err, class)
				}
				if gave, err := l.RefundOf(ctx, "k", 3, r); gave || err != nil {
					t.Errorf("%s: RefundOf a charge that failed: %v, %v", name, gave, err)
				}
				if len(store.ops) != 1 || store.ops[0].Kind != kind {
					t.Errorf("%s: Charge(%d) sends %v, want %v once", name, n, store.ops, kind)
				}
			}
			store.ops = nil
			if err := l.Block(ctx, "k", time.Hour); !errors.Is(err, class) || len(store.ops) != 1 || store.ops[0].Kind != limiter.OpBlock {
				t.Errorf("%s: Block = %v, sent %v, want %v and one block", name, err, store.ops, class)
			}
			store.err = nil
			if _, err := l.Charge(ctx, "k", 3); err != nil {
				t.Error(err)
			}
			if seen != 4 {
				t.Errorf("%s: the observer saw %d operations, want 4", name, seen)
			}
			if r, err := l.Peek(ctx, "k"); err != nil || r.Remaining != 2 {
				t.Errorf("%s: afterwards %+v, %v, want 2 left", name, r, err)
			}
		}
	}
}

func TestAllowUpToUnderFailurePolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		fail   limiter.Option
		takes  []int64
		source limiter.Source
	}{
		{"closed", limiter.FailClosed(), []int64{0, 0}, limiter.SourcePolicy},
		{"open", limiter.FailOpen(), []int64{7, 7}, limiter.SourcePolicy},
		{"local", limiter.FailLocal(memory.New()), []int64{5, 0}, limiter.SourceLocal},
	} {
		var seen limiter.Decision
		l := newLimiter(t, &brokenStore{err: limiter.ErrOutcomeUnknown}, limiter.PerHour(5), c.fail,
			limiter.WithObserver(func(_ context.Context, d limiter.Decision) { seen = d }))
		for i, want := range c.takes {
			r, err := l.AllowUpTo(t.Context(), "k", 7)
			if r.Taken != want || r.Allowed != (want > 0) || r.Source != c.source || (err != nil) != (c.name == "closed") {
				t.Errorf("%s: call %d: AllowUpTo(7) = %+v, %v, want %d by %v", c.name, i, r, err, want, c.source)
			}
			if seen.Cost != 7 || seen.Op != limiter.OpTakeUpTo || seen.Result != r || !errors.Is(seen.Err, limiter.ErrOutcomeUnknown) {
				t.Errorf("%s: call %d: the observer saw %+v", c.name, i, seen)
			}
			if c.name == "local" && want > 0 {
				if gave, err := l.RefundOf(t.Context(), "k", 7, r); !gave || err != nil {
					t.Errorf("RefundOf what the fallback took: %v, %v", gave, err)
				}
				if _, err := l.AllowUpTo(t.Context(), "k", want); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestTheNewCallsAskTheStoreForNothingInvalid(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	gone, leave := context.WithCancel(ctx)
	leave()
	store := &brokenStore{}
	l := newLimiter(t, store, limiter.PerSecond(5))
	w := newLimiter(t, store, limiter.FixedWindow{Limit: 5, Window: time.Second})
	counts := newLimiter(t, store, limiter.FixedWindow{Limit: 5, Window: time.Second, CountRejected: true})
	charge := func(ctx context.Context, l *limiter.Limiter, key string, n int64) error {
		_, err := l.Charge(ctx, key, n)
		return err
	}
	upTo := func(ctx context.Context, l *limiter.Limiter, key string, n int64) error {
		r, err := l.AllowUpTo(ctx, key, n)
		if r.Taken != 0 || r.Allowed {
			return fmt.Errorf("AllowUpTo: %+v, %w", r, err)
		}
		return err
	}
	peek := func(ctx context.Context, l *limiter.Limiter, key string, n int64) error {
		_, err := l.PeekN(ctx, key, n)
		return err
	}
	const most = int64(thirtyYears / (200 * time.Millisecond))
	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"a charge to nobody", charge(ctx, l, "", 1), limiter.ErrInvalid},
		{"a charge of 0 to nobody", charge(ctx, l, "", 0), limiter.ErrInvalid},
		{"a negative charge", charge(ctx, l, "k", -1), limiter.ErrInvalid},
		{"the lowest charge", charge(ctx, w, "k", math.MinInt64), limiter.ErrInvalid},
		{"a charge of over 30 years", charge(ctx, l, "k", most+1), limiter.ErrExceedsCapacity},
		{"the highest charge", charge(ctx, l, "k", math.MaxInt64), limiter.ErrExceedsCapacity},
		{"a charge by a caller who has left", charge(gone, l, "k", 1), limiter.ErrCanceled},
		{"up to nothing", upTo(ctx, l, "k", 0), limiter.ErrInvalid},
		{"up to a negative cost", upTo(ctx, w, "k", -1), limiter.ErrInvalid},
		{"up to 1 of nobody", upTo(ctx, l, "", 1), limiter.ErrInvalid},
		{"up to 1 where refusals count", upTo(ctx, counts, "k", 1), errors.ErrUnsupported},
		{"up to 1 where refusals count is invalid", upTo(ctx, counts, "k", 1), limiter.ErrInvalid},
		{"up to 1 by a caller who has left", upTo(gone, l, "k", 1), context.Canceled},
		{"a look at a negative cost", peek(ctx, l, "k", -1), limiter.ErrInvalid},
		{"a look at the lowest cost", peek(ctx, w, "k", math.MinInt64), limiter.ErrInvalid},
		{"a look above the capacity", peek(ctx, l, "k", 6), limiter.ErrExceedsCapacity},
		{"a look above the limit", peek(ctx, w, "k", math.MaxInt64), limiter.ErrExceedsCapacity},
		{"a look above the limit where refusals count", peek(ctx, counts, "k", 6), limiter.ErrExceedsCapacity},
		{"a look at nobody", peek(ctx, l, "", 1), limiter.ErrInvalid},
		{"a block of nobody", l.Block(ctx, "", time.Second), limiter.ErrInvalid},
		{"a block of no time", l.Block(ctx, "k", 0), limiter.ErrInvalid},
		{"a block of negative time", w.Block(ctx, "k", -1), limiter.ErrInvalid},
		{"the lowest block", l.Block(ctx, "k", math.MinInt64), limiter.ErrInvalid},
		{"a block that is too long", w.Block(ctx, "k", limiter.MaxBlock+1), limiter.ErrInvalid},
		{"the highest block", counts.Block(ctx, "k", math.MaxInt64), limiter.ErrInvalid},
		{"a block by a caller who has left", l.Block(gone, "k", time.Second), limiter.ErrCanceled},
	} {
		if !errors.Is(c.err, c.want) || limiter.StoreFailed(c.err) {
			t.Errorf("%s: %v, want %v", c.what, c.err, c.want)
		}
	}
	if store.calls != 0 {
		t.Errorf("the store was called %d times", store.calls)
	}
	for i, err := range []error{
		charge(ctx, l, "k", most), charge(ctx, w, "k", math.MaxInt64), charge(ctx, counts, "k", 1), peek(ctx, counts, "k", 5),
		l.Block(ctx, "k", 1), w.Block(ctx, "k", limiter.MaxBlock), counts.Block(ctx, "k", 1),
	} {
		if err != nil || store.calls != 7 {
			t.Errorf("valid call %d: %v, %d calls of the store, want 7", i, err, store.calls)
		}
	}
}

func TestAllowUpToAndTheDenyCache(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, start)
	d := newDenying(t, limiter.PerHour(2), limiter.WithClock(func() time.Time { return now }))
	upTo := func(n, want int64, source limiter.Source) {
		t.Helper()
		r, err := d.AllowUpTo(t.Context(), "k", n)
		if err != nil || r.Taken != want || r.Allowed != (want > 0) || r.Source != source {
			t.Errorf("AllowUpTo(%d) = %+v, %v, want %d by %v", n, r, err, want, source)
		}
	}
	d.expect("k", 1, true, store)
	d.expect("k", 2, false, store)
	upTo(9, 1, store) // the cached refusal of 2 says nothing about 1
	upTo(9, 0, store)
	upTo(9, 0, cache)
	d.expect("k", 1, false, cache) // a refusal of AllowUpTo is one of a cost of 1
	d.expect("k", 2, false, cache)
	if err := d.Block(t.Context(), "k", time.Hour); err != nil {
		t.Error(err)
	}
	d.expect("k", 1, false, store) // the refusal before the block ends too early
	d.expect("k", 1, false, cache)
	if err := d.Reset(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	upTo(9, 2, store)
}

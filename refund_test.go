package limiter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func TestRefundOfOfWhatChargedNothingAsksNoStore(t *testing.T) {
	t.Parallel()
	for _, p := range []limiter.Policy{
		limiter.PerDay(2),
		limiter.FixedWindow{Limit: 2, Window: 24 * time.Hour},
		limiter.FixedWindow{Limit: 2, Window: 24 * time.Hour, CountRejected: true},
	} {
		store := &flakyStore{Store: memory.New()}
		l := newLimiter(t, store, p, limiter.FailOpen())
		allow := func(n int64) limiter.Result {
			res, _ := l.AllowN(t.Context(), "k", n)
			return res
		}
		results := map[string]limiter.Result{"no Result": {}, "a peek": allow(0), "a cost above the limit": allow(3)}
		charged := allow(2)
		results["a refusal"] = allow(1)
		store.err = limiter.ErrOutcomeUnknown
		if results["a pass by FailOpen"] = allow(1); !results["a pass by FailOpen"].Allowed {
			t.Fatal("FailOpen does not let it pass")
		}
		store.err = nil
		asked := len(store.ops)
		for name, res := range results {
			if gave, err := l.RefundOf(t.Context(), "k", 1, res); gave || err != nil || len(store.ops) != asked {
				t.Errorf("%T: RefundOf %s = %v, %v, in %d calls; want false in none", p, name, gave, err, len(store.ops)-asked)
			}
		}
		if gave, err := l.RefundOf(t.Context(), "k", 0, charged); gave || err != nil || len(store.ops) != asked {
			t.Errorf("%T: RefundOf of 0 = %v, %v, in %d calls; want false in none", p, gave, err, len(store.ops)-asked)
		}
		if gave, err := l.RefundOf(t.Context(), "k", 1, charged); !gave || err != nil {
			t.Errorf("%T: RefundOf what was charged = %v, %v, want true", p, gave, err)
		}
	}
}

func TestRefundOfChecksItsArguments(t *testing.T) {
	t.Parallel()
	store := &flakyStore{Store: memory.New()}
	l := newLimiter(t, store, limiter.PerDay(5))
	res, err := l.Allow(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	local := newLimiter(t, &brokenStore{err: limiter.ErrNotApplied}, limiter.PerDay(5), limiter.FailLocal(memory.New()))
	byFallback, err := local.Allow(t.Context(), "k")
	if err != nil || byFallback.Source != limiter.SourceLocal {
		t.Fatalf("Allow = %+v, %v", byFallback, err)
	}
	asked := len(store.ops)
	for _, c := range []struct {
		what string
		ctx  context.Context
		key  string
		n    int64
		res  limiter.Result
		want error
	}{
		{"a negative refund", t.Context(), "k", -1, res, limiter.ErrInvalid},
		{"a negative refund of nothing", t.Context(), "k", -1, limiter.Result{}, limiter.ErrInvalid},
		{"a refund without a key", t.Context(), "", 1, res, limiter.ErrInvalid},
		{"a refund by a caller who has left", gone, "k", 1, res, limiter.ErrCanceled},
		{"a refund of nothing by a caller who has left", gone, "k", 1, limiter.Result{}, limiter.ErrCanceled},
		{"what another limiter's fallback charged", t.Context(), "k", 1, byFallback, limiter.ErrInvalid},
	} {
		if gave, err := l.RefundOf(c.ctx, c.key, c.n, c.res); gave || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.what, gave, err, c.want)
		}
	}
	if len(store.ops) != asked {
		t.Errorf("the store was asked for %v", store.ops[asked:])
	}
}

func TestRefundOfPassesErrorsOfTheStoreOn(t *testing.T) {
	t.Parallel()
	store := &flakyStore{Store: memory.New()}
	l := newLimiter(t, store, limiter.PerDay(5), limiter.FailOpen())
	res, err := l.Allow(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for _, store.err = range []error{limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrCanceled} {
		asked := len(store.ops)
		if gave, err := l.RefundOf(t.Context(), "k", 1, res); gave || !errors.Is(err, store.err) {
			t.Errorf("RefundOf = %v, %v, want %v", gave, err, store.err)
		}
		if n := len(store.ops) - asked; n != 1 {
			t.Errorf("%v: the store was asked %d times: to give back twice would let too much in", store.err, n)
		}
	}
}

func TestFailLocalRefundsAResultWhereItWasCharged(t *testing.T) {
	t.Parallel()
	store, fallback := &flakyStore{Store: memory.New()}, &flakyStore{Store: memory.New()}
	l := newLimiter(t, store, limiter.PerDay(1), limiter.FailLocal(fallback))
	for _, c := range []struct {
		down           error
		charged, other *flakyStore
	}{{nil, store, fallback}, {limiter.ErrNotApplied, fallback, store}} {
		store.err = c.down
		res, err := l.Allow(t.Context(), "k")
		if err != nil || !res.Allowed {
			t.Fatalf("Allow = %+v, %v", res, err)
		}
		store.err = nil // it is back before the refund
		asked, askedOther := len(c.charged.ops), len(c.other.ops)
		if gave, err := l.RefundOf(t.Context(), "k", 1, res); !gave || err != nil {
			t.Errorf("RefundOf a Result by %v = %v, %v, want true", res.Source, gave, err)
		}
		if len(c.charged.ops) != asked+1 || len(c.other.ops) != askedOther {
			t.Errorf("RefundOf a Result by %v asked the stores %v and %v", res.Source, c.charged.ops, c.other.ops)
		}
		store.err = c.down
		mustAllow(t, l, true)
	}
}

package limiter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func TestRefundOfNothing(t *testing.T) {
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

// tookStore fails, and says that it did something.
type tookStore struct{}

func (tookStore) Do(context.Context, limiter.Op) (limiter.State, error) {
	return limiter.State{Took: true}, limiter.ErrOutcomeUnknown
}

// A refund that fails does not report that it gave something back.
func TestRefundThatFails(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, memory.New(), limiter.PerDay(5))
	charged, err := l.Allow(t.Context(), "k")
	must(t, err)
	local, err := newLimiter(t, &brokenStore{err: limiter.ErrNotApplied}, limiter.PerDay(5), limiter.FailLocal(memory.New())).Allow(t.Context(), "k")
	if err != nil || local.Source != limiter.SourceLocal {
		t.Fatalf("Allow = %+v, %v; want a decision of the fallback", local, err)
	}
	for _, c := range []struct {
		name string
		l    *limiter.Limiter
		key  string
		n    int64
		res  limiter.Result
		want error
	}{
		{"a negative refund", l, "k", -1, charged, limiter.ErrInvalid},
		{"a refund without a key", l, "", 1, charged, limiter.ErrInvalid},
		{"what another limiter's fallback charged", l, "k", 1, local, limiter.ErrInvalid},
		{"a store that fails", newLimiter(t, tookStore{}, limiter.PerDay(5)), "k", 1, charged, limiter.ErrOutcomeUnknown},
	} {
		if gave, err := c.l.RefundOf(t.Context(), c.key, c.n, c.res); gave || !errors.Is(err, c.want) {
			t.Errorf("%s: RefundOf = %t, %v; want false, %v", c.name, gave, err, c.want)
		}
	}
}

func TestGivingBackToTheFallback(t *testing.T) {
	t.Parallel()
	for name, giveBack := range map[string]func(l *limiter.Limiter, r *limiter.Reservation) error{
		"RefundOf": func(l *limiter.Limiter, r *limiter.Reservation) error {
			gave, err := l.RefundOf(t.Context(), "k", 1, r.Result)
			if !gave {
				t.Errorf("RefundOf a Result by %v gave nothing back", r.Source)
			}
			return err
		},
		"Cancel": func(_ *limiter.Limiter, r *limiter.Reservation) error { return r.Cancel(t.Context()) },
	} {
		store, fallback := &flakyStore{Store: memory.New()}, &flakyStore{Store: memory.New()}
		l := newLimiter(t, store, limiter.PerDay(1), limiter.FailLocal(fallback), fixed())
		for _, c := range []struct {
			down           error
			charged, other *flakyStore
		}{{nil, store, fallback}, {limiter.ErrNotApplied, fallback, store}} {
			store.err = c.down
			r, err := l.Reserve(t.Context(), "k", 1, 0)
			if err != nil || !r.Allowed {
				t.Fatalf("Reserve = %+v, %v", r, err)
			}
			store.err = nil // the store works again before the request is given back
			asked, askedOther := len(c.charged.ops), len(c.other.ops)
			if err := giveBack(l, r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if len(c.charged.ops) != asked+1 || len(c.other.ops) != askedOther {
				t.Errorf("%s of a Result by %v sent %v and %v, want one operation to the store that was charged", name, r.Source, c.charged.ops, c.other.ops)
			}
			store.err = c.down
			mustAllow(t, l, true)
		}
	}
}

package limiter_test

import (
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func TestRefundOfNothing(t *testing.T) {
	t.Parallel()
	for _, p := range samples {
		store := &spyStore{Store: memory.New()}
		l := newLimiter(t, store, p, limiter.FailOpen())
		allow := func(n int64) limiter.Result {
			res, _ := l.AllowN(t.Context(), "k", n)
			return res
		}
		results := map[string]limiter.Result{"no Result": {}, "a peek": allow(0), "a cost above the limit": allow(6)}
		charged := allow(5)
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
		store, fallback := &spyStore{Store: memory.New()}, &spyStore{Store: memory.New()}
		l := newLimiter(t, store, limiter.PerDay(1), limiter.FailLocal(fallback), fixed())
		for _, c := range []struct {
			down           error
			charged, other *spyStore
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

package borrow

import (
	"cmp"
	"errors"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

// The inner store decides these calls, and counts what is held as taken. A refusal of theirs says nothing about a
// take, which what is held may cover.
func TestDenyCacheBesideAHolding(t *testing.T) {
	// upTo calls AllowUpTo while the inner bucket is empty. Before the inner store answers, it calls meanwhile.
	upTo := func(f *fixture, meanwhile func() error) (limiter.Result, error) {
		testenv.Must(f, testenv.ErrorOf(f.limiter(f.inner.Store, hourly).AllowN(f.Context(), "k", 993)))
		f.inner.after = func(limiter.Op) error { f.inner.after = nil; return meanwhile() }
		return f.l.AllowUpTo(f.Context(), "k", 5)
	}
	waits := map[string]time.Duration{"AllowAll": 2 * time.Hour, "Reserve": 2*time.Hour - time.Millisecond, "a take during a borrow": 16 * time.Hour}
	for name, call := range map[string]func(f *fixture) (limiter.Result, error){
		"AllowAll": func(f *fixture) (limiter.Result, error) {
			r, err := limiter.AllowAll(f.Context(), limiter.Claim{Limiter: f.l, Key: "k", Cost: 995})
			return r.Result, err
		},
		"Reserve": func(f *fixture) (limiter.Result, error) {
			r, err := f.l.Reserve(f.Context(), "k", 995, time.Millisecond)
			return r.Result, err
		},
		"AllowUpTo": func(f *fixture) (limiter.Result, error) { return upTo(f, func() error { return nil }) },
		"AllowUpTo while tokens come back": func(f *fixture) (limiter.Result, error) {
			return upTo(f, func() error { return testenv.ErrorOf(f.limiter(f.store, hourly).Refund(f.Context(), "k", 1)) })
		},
		"AllowUpTo before a borrow": func(f *fixture) (limiter.Result, error) {
			f.allow(1, true)
			limited := f.limiter(f.inner.Store, hourly)
			return upTo(f, func() error {
				return errors.Join(testenv.ErrorOf(limited.Refund(f.Context(), "k", 100)), testenv.ErrorOf(f.limiter(f.store, hourly).Allow(f.Context(), "k")))
			})
		},
		"a take during a borrow": func(f *fixture) (limiter.Result, error) {
			f.allow(1, true)
			answers := make(chan error)
			f.inner.after = func(op limiter.Op) error {
				if op.Kind == limiter.OpTakeUpTo {
					return <-answers
				}
				return nil
			}
			own := f.ask(f.Context(), 1)
			testenv.Must(f, testenv.ErrorOf(f.l.Refund(f.Context(), "k", 1))) // so the store decides the next take
			r, err := f.l.AllowN(f.Context(), "k", 994)
			answers <- nil
			f.granted(own)
			return r, err
		},
	} {
		run(t, name, 1000, func(f *fixture) {
			f.l = f.limiter(f.store, hourly, limiter.WithDenyCache(10, time.Minute))
			f.hold()
			f.allow(2, true) // one token is left
			r, err := call(f)
			testenv.Must(f, err)
			next, err := f.l.AllowN(f.Context(), "k", min(994, r.Remaining+1))
			if r.Allowed || r.RetryAfter != cmp.Or(waits[name], time.Hour) || err != nil || next.Source == limiter.SourceDenyCache {
				f.Errorf("%+v, then %+v, %v", r, next, err)
			}
		})
	}
}

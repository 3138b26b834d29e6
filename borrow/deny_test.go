package borrow

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

// The inner store decides these calls, and counts what is held as taken. A refusal of theirs says nothing about a
// take, which what is held may cover.
func TestDenyCacheBesideAHolding(t *testing.T) {
	for name, call := range map[string]func(f *fixture) (limiter.Result, error){
		"AllowAll": func(f *fixture) (limiter.Result, error) {
			r, err := limiter.AllowAll(f.Context(), limiter.Claim{Limiter: f.l, Key: "k", Cost: 995})
			return r.Result, err
		},
		"Reserve": func(f *fixture) (limiter.Result, error) {
			r, err := f.l.Reserve(f.Context(), "k", 995, time.Millisecond)
			return r.Result, err
		},
		"AllowUpTo": func(f *fixture) (limiter.Result, error) {
			testenv.Must(f, testenv.ErrorOf(f.limiter(f.inner.Store, hourly).AllowN(f.Context(), "k", 993)))
			return f.l.AllowUpTo(f.Context(), "k", 5)
		},
		"a take during a borrow": func(f *fixture) (limiter.Result, error) {
			f.allow(3, true)
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
			r, err := call(f)
			testenv.Must(f, err)
			next, err := f.l.AllowN(f.Context(), "k", min(994, r.Remaining+1))
			if r.Allowed || err != nil || next.Source == limiter.SourceDenyCache {
				f.Errorf("%+v, then %+v, %v", r, next, err)
			}
		})
	}
}

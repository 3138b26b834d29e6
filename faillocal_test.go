package limiter_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// flakyStore remembers what it was asked for. It fails with err while that is not nil.
type flakyStore struct {
	limiter.Store
	err error

	mu  sync.Mutex
	ops []limiter.Op
}

func (s *flakyStore) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	s.mu.Lock()
	s.ops = append(s.ops, op)
	s.mu.Unlock()
	if s.err != nil {
		return limiter.State{}, s.err
	}
	return s.Store.Do(ctx, op)
}

// What the store admits and what the fallback admits while the store is down are each at
// most what the policy admits.
func TestFailLocalAdmitsPolicyOnceMore(t *testing.T) {
	t.Parallel()
	store := &flakyStore{Store: memory.New()}
	l := newLimiter(t, store, limiter.PerHour(5), limiter.FailLocal(memory.New()))
	admitted := map[limiter.Source]int{}
	for i, err := range []error{nil, limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, nil} {
		store.err = err
		for range 20 {
			res, err := l.Allow(t.Context(), "k")
			must(t, err)
			if local := res.Source == limiter.SourceLocal; local != (store.err != nil) {
				t.Fatalf("phase %d: the source is %v", i, res.Source)
			}
			if res.Allowed {
				admitted[res.Source]++
			} else if res.RetryAfter <= 0 {
				t.Errorf("a refusal by %v has RetryAfter %v", res.Source, res.RetryAfter)
			}
		}
	}
	if admitted[limiter.SourceStore] != 5 || admitted[limiter.SourceLocal] != 5 {
		t.Errorf("admitted %v, want 5 by each", admitted)
	}
}

func TestFailLocalWithFailingFallback(t *testing.T) {
	t.Parallel()
	var seen limiter.Decision
	l := newLimiter(t, &flakyStore{err: limiter.ErrNotApplied}, limiter.PerHour(1),
		limiter.FailLocal(&flakyStore{err: limiter.ErrMisconfigured}),
		limiter.WithObserver(func(_ context.Context, d limiter.Decision) { seen = d }))
	res, err := l.Allow(t.Context(), "k")
	if res != (limiter.Result{Source: limiter.SourcePolicy}) || !errors.Is(err, limiter.ErrNotApplied) || !errors.Is(err, limiter.ErrMisconfigured) {
		t.Errorf("Allow = %+v, %v", res, err)
	}
	if seen.Err != err || seen.Result != res {
		t.Errorf("the observer was told %+v", seen)
	}
}

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

// brokenStore returns an error for every operation.
type brokenStore struct {
	err   error
	calls int
}

func (s *brokenStore) Do(context.Context, limiter.Op) (limiter.State, error) {
	s.calls++
	return limiter.State{Took: true}, s.err
}

// errKeyBusy is the error of an operation that timed out in its key's queue.
var errKeyBusy = fmt.Errorf("%w: %w: %w", limiter.ErrKeyBusy, limiter.ErrNotApplied, context.DeadlineExceeded)

func TestFailOpenLetsPassOnlyWhatTheStoreFailedAt(t *testing.T) {
	t.Parallel()
	cause := errors.New("the cable is out")
	for _, c := range []struct {
		class  error
		passes bool
	}{
		{limiter.ErrNotApplied, true},
		{limiter.ErrOutcomeUnknown, true},
		{fmt.Errorf("%w: %w", limiter.ErrNotApplied, context.DeadlineExceeded), true},
		{limiter.ErrInvalid, false},
		{limiter.ErrExceedsCapacity, false},
		{limiter.ErrMisconfigured, false},
		{limiter.ErrCanceled, false},
		{fmt.Errorf("%w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown), false},
		{fmt.Errorf("%w: %w", limiter.ErrNotApplied, limiter.ErrMisconfigured), false},
		{errKeyBusy, false},
		{errors.ErrUnsupported, false},
		{errors.New("of no class"), false},
	} {
		store := &brokenStore{err: errors.Join(c.class, cause)}
		if got := limiter.StoreFailed(store.err); got != c.passes {
			t.Errorf("StoreFailed(%v) = %v, want %v", c.class, got, c.passes)
		}
		l := newLimiter(t, store, limiter.PerSecond(1), limiter.FailClosed(), limiter.FailOpen())
		want := limiter.Result{Allowed: c.passes, Source: limiter.SourcePolicy}
		for name, ask := range map[string]func() (limiter.Result, error){
			"Allow":  func() (limiter.Result, error) { return l.Allow(t.Context(), "k") },
			"AllowN": func() (limiter.Result, error) { return l.AllowN(t.Context(), "k", 1) },
			"Peek":   func() (limiter.Result, error) { return l.Peek(t.Context(), "k") },
			"Reserve": func() (limiter.Result, error) {
				r, err := l.Reserve(t.Context(), "k", 1, time.Second)
				if d := time.Duration(math.MaxInt64); c.passes != (r.Delay == 0) || !c.passes != (r.Delay == d) {
					t.Errorf("%v: Reserve's Delay is %v", c.class, r.Delay)
				}
				calls := store.calls
				if e := r.Cancel(t.Context()); e != nil || store.calls != calls {
					t.Errorf("%v: Cancel of what was not booked = %v, in %d calls", c.class, e, store.calls-calls)
				}
				return r.Result, err
			},
			"Wait": func() (limiter.Result, error) { return want, l.Wait(t.Context(), "k") },
		} {
			want := want
			if c.passes && name != "Peek" && name != "Wait" {
				want.Taken = 1
			}
			res, err := ask()
			if res != want || errors.Is(err, cause) == c.passes || (err == nil) != c.passes {
				t.Errorf("%v: %s = %+v, %v; want Allowed %v", c.class, name, res, err, c.passes)
			}
		}
		if _, err := l.Refund(t.Context(), "k", 1); !errors.Is(err, cause) {
			t.Errorf("%v: Refund = %v, want the store's error", c.class, err)
		}
		if err := l.Reset(t.Context(), "k"); !errors.Is(err, cause) {
			t.Errorf("%v: Reset = %v, want the store's error", c.class, err)
		}
	}
}

// In a transaction of the caller's an error of the store means that the transaction is dead.
func TestNoFailurePolicyOnAProvisionalStore(t *testing.T) {
	t.Parallel()
	for _, class := range []error{limiter.ErrNotApplied, limiter.ErrOutcomeUnknown} {
		for name, opt := range failurePolicies() {
			var seen []limiter.Decision
			l := newLimiter(t, inTransaction{&brokenStore{err: class}}, limiter.PerDay(1), opt,
				limiter.WithObserver(func(_ context.Context, d limiter.Decision) { seen = append(seen, d) }))
			res, err := l.Allow(t.Context(), "k")
			if res != (limiter.Result{Source: limiter.SourcePolicy}) || !errors.Is(err, class) {
				t.Errorf("%s, %v: Allow = %+v, %v; want the store's error", name, class, res, err)
			}
			if len(seen) != 1 || seen[0].Result != res || !errors.Is(seen[0].Err, class) {
				t.Errorf("%s, %v: the observer saw %+v", name, class, seen)
			}
			if err := l.Wait(t.Context(), "k"); !errors.Is(err, class) {
				t.Errorf("%s, %v: Wait = %v, want the store's error", name, class, err)
			}
		}
	}
}

func TestFailOpenOpensNoDoorToBadInputOrACallerWhoLeft(t *testing.T) {
	t.Parallel()
	store := &brokenStore{err: limiter.ErrNotApplied}
	l := newLimiter(t, store, limiter.PerSecond(5), limiter.FailOpen())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	for _, c := range []struct {
		ctx  context.Context
		key  string
		n    int64
		want error
	}{
		{t.Context(), "", 1, limiter.ErrInvalid},
		{t.Context(), "k", -1, limiter.ErrInvalid},
		{t.Context(), "k", 6, limiter.ErrExceedsCapacity},
		{gone, "k", 1, limiter.ErrCanceled},
		{late, "k", 1, limiter.ErrCanceled},
	} {
		if res, err := l.AllowN(c.ctx, c.key, c.n); res.Allowed || !errors.Is(err, c.want) {
			t.Errorf("AllowN(%q, %d) = %+v, %v; want %v", c.key, c.n, res, err, c.want)
		}
	}
	if store.calls != 0 {
		t.Errorf("the store was asked %d times", store.calls)
	}
}

func TestTheLastFailurePolicyCounts(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, &brokenStore{err: limiter.ErrNotApplied}, limiter.PerSecond(1), limiter.FailOpen(), limiter.FailClosed())
	if res, err := l.Allow(t.Context(), "k"); res.Allowed || !errors.Is(err, limiter.ErrNotApplied) {
		t.Errorf("Allow = %+v, %v; want a refusal with ErrNotApplied", res, err)
	}
}

func TestEveryOperationHasTheTimeLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		opts []limiter.Option
		want time.Duration
	}{
		{nil, 250 * time.Millisecond},
		{[]limiter.Option{limiter.WithTimeout(time.Second)}, time.Second},
		{[]limiter.Option{limiter.WithTimeout(1)}, 1},
	} {
		store := &flakyStore{Store: memory.New()}
		l := newLimiter(t, store, limiter.PerSecond(1), c.opts...)
		_, _ = l.Allow(t.Context(), "k")
		_, _ = l.Peek(t.Context(), "k")
		r, _ := l.Reserve(t.Context(), "k", 1, time.Second)
		_ = r.Cancel(t.Context())
		_, _ = l.Refund(t.Context(), "k", 1)
		_ = l.Reset(t.Context(), "k")
		if len(store.ops) != 6 {
			t.Errorf("%d operations, want 6", len(store.ops))
		}
		for _, op := range store.ops {
			if op.Timeout != c.want {
				t.Errorf("operation %d has %v, want %v", op.Kind, op.Timeout, c.want)
			}
		}
	}
}

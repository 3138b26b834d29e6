package limiter_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

func TestFailLocalAsksTheFallbackOnlyForWhatTheStoreFailedAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		class error
		local bool
	}{
		{limiter.ErrNotApplied, true},
		{limiter.ErrOutcomeUnknown, true},
		{limiter.ErrInvalid, false},
		{limiter.ErrMisconfigured, false},
		{limiter.ErrCanceled, false},
		{errKeyBusy, false},
		{errors.ErrUnsupported, false},
	} {
		fallback := &flakyStore{Store: memory.New()}
		l := newLimiter(t, &flakyStore{err: c.class}, limiter.PerHour(2), limiter.FailLocal(fallback))
		res, err := l.Allow(t.Context(), "k")
		want := limiter.Result{Source: limiter.SourcePolicy}
		if c.local {
			want = limiter.Result{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 30 * time.Minute, Taken: 1, Source: limiter.SourceLocal, Policy: limiter.PerHour(2)}
		} else if !errors.Is(err, c.class) {
			t.Errorf("%v: Allow fails with %v", c.class, err)
		}
		if res.Visible() != want || (err == nil) != c.local || (len(fallback.ops) == 1) != c.local {
			t.Errorf("%v: Allow = %+v, %v, in %d calls of the fallback; want %+v", c.class, res, err, len(fallback.ops), want)
		}
	}
}

// What the store admits and what the fallback admits while the store is down are each at
// most what the policy admits.
func TestFailLocalAdmitsDuringAnOutageWhatThePolicyAdmitsOnceMore(t *testing.T) {
	t.Parallel()
	store := &flakyStore{Store: memory.New()}
	l := newLimiter(t, store, limiter.PerHour(5), limiter.FailLocal(memory.New()))
	admitted := map[limiter.Source]int{}
	for i, err := range []error{nil, limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, nil} {
		store.err = err
		for range 20 {
			res, err := l.Allow(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
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

func TestFailLocalCancelsAReservationWhereItWasBooked(t *testing.T) {
	t.Parallel()
	store, fallback := &flakyStore{Store: memory.New()}, &flakyStore{Store: memory.New()}
	l := newLimiter(t, store, limiter.PerHour(1), limiter.FailLocal(fallback))
	of := map[limiter.Source]*flakyStore{limiter.SourceStore: store, limiter.SourceLocal: fallback}
	for _, down := range []error{nil, limiter.ErrNotApplied} {
		store.err = down
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		r, err := l.Reserve(t.Context(), "k", 1, time.Hour)
		if err != nil || !r.Allowed || r.Delay < time.Hour-time.Minute {
			t.Fatalf("Reserve = %+v, %v", r, err)
		}
		booked, other := of[r.Source], store
		if booked == store {
			other = fallback
		}
		store.err = nil // it is back before the reservation is canceled
		asked, askedOther := len(booked.ops), len(other.ops)
		if err := r.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(booked.ops) != asked+1 || booked.ops[asked].Kind != limiter.OpCancel || len(other.ops) != askedOther {
			t.Errorf("Cancel of a booking by %v asked the stores %v and %v", r.Source, booked.ops, other.ops)
		}
		store.err = down
		if again, err := l.Reserve(t.Context(), "k", 1, time.Hour); err != nil || !again.Allowed {
			t.Errorf("what was canceled cannot be booked again: %+v, %v", again, err)
		}
	}
}

func TestFailLocalLeavesRefundsAndResetsToTheStore(t *testing.T) {
	t.Parallel()
	fallback := &flakyStore{Store: memory.New()}
	l := newLimiter(t, &flakyStore{err: limiter.ErrNotApplied}, limiter.PerHour(1), limiter.FailLocal(fallback))
	if _, err := l.Refund(t.Context(), "k", 1); !errors.Is(err, limiter.ErrNotApplied) {
		t.Errorf("Refund = %v", err)
	}
	if err := l.Reset(t.Context(), "k"); !errors.Is(err, limiter.ErrNotApplied) {
		t.Errorf("Reset = %v", err)
	}
	if len(fallback.ops) != 0 {
		t.Errorf("the fallback was asked for %v", fallback.ops)
	}
}

func TestFailLocalRefusesIfTheFallbackFailsToo(t *testing.T) {
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

func TestFailLocalTellsTheObserverWhoDecidedAndWhy(t *testing.T) {
	t.Parallel()
	var seen []limiter.Decision
	store := &flakyStore{Store: memory.New()}
	l := newLimiter(t, store, limiter.PerHour(1), limiter.FailLocal(memory.New()),
		limiter.WithObserver(func(_ context.Context, d limiter.Decision) { seen = append(seen, d) }))
	for _, err := range []error{nil, limiter.ErrOutcomeUnknown} {
		store.err = err
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 2 || seen[0].Err != nil || seen[0].Result.Source != limiter.SourceStore ||
		!errors.Is(seen[1].Err, limiter.ErrOutcomeUnknown) || seen[1].Result.Source != limiter.SourceLocal {
		t.Errorf("the observer was told %+v", seen)
	}
}

func TestFailLocalWaitsForATurnOfTheFallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, &flakyStore{err: limiter.ErrNotApplied}, limiter.PerHour(1), limiter.FailLocal(memory.New()))
		begin := time.Now()
		for range 2 {
			if err := l.Wait(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(begin); waited != time.Hour {
			t.Errorf("two waited %v, want an hour", waited)
		}
	})
}

package limiter_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func TestConcurrencyFailurePolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		class    error
		fails    bool // whether the store failed, so that the failure policy applies
		releases int  // that TryAcquire sends
	}{
		{limiter.ErrNotApplied, true, 0},
		{limiter.ErrOutcomeUnknown, true, 1},
		{limiter.ErrMisconfigured, false, 0},
		{fmt.Errorf("%w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown), false, 1},
		{errKeyBusy, false, 0},
		{errors.ErrUnsupported, false, 0},
	} {
		for name, opt := range failurePolicies() {
			store := &flakyStore{Store: memory.New(), err: c.class}
			l, err := limiter.NewConcurrency(store, "l", limiter.InFlight{Limit: 1, Hold: time.Minute}, opt)
			if err != nil {
				t.Fatal(err)
			}
			what := "Fail " + name + " and " + c.class.Error()
			lease, err := l.TryAcquire(t.Context(), "k")
			if n := len(store.ops) - 1; n != c.releases {
				t.Errorf("%s: %d releases were sent, want %d", what, n, c.releases)
			}
			passes := c.fails && name != "closed"
			if lease.Allowed != passes || passes != (err == nil) || !passes && !errors.Is(err, c.class) {
				t.Errorf("%s: %+v, %v", what, lease.Result, err)
			}
			local := c.fails && name == "local"
			if (lease.Source == limiter.SourceLocal) != local || (lease.Length == time.Minute) != local || !local && lease.Length != 0 {
				t.Errorf("%s: %+v of %v", what, lease.Result, lease.Length)
			}
			if local { // its only place is taken
				if second, err := l.TryAcquire(t.Context(), "k"); err != nil || second.Allowed || second.Source != limiter.SourceLocal {
					t.Errorf("%s: a second lease: %+v, %v", what, second.Result, err)
				}
			}
			sent := len(store.ops)
			if held, err := lease.Extend(t.Context(), time.Hour); held != passes || err != nil || len(store.ops) != sent {
				t.Errorf("%s: Extend = %v, %v", what, held, err)
			}
			store.err = nil // a release goes to the store again if it may have the lease
			for range 2 {
				if err := lease.Release(t.Context()); err != nil || len(store.ops) != sent+c.releases {
					t.Errorf("%s: %d releases, %v; want %d", what, len(store.ops)-sent, err, c.releases)
				}
			}
			if held, err := lease.Extend(t.Context(), time.Hour); held || err != nil {
				t.Errorf("%s: after a release, Extend = %v, %v", what, held, err)
			}
			store.err = c.class
			if again, err := l.TryAcquire(t.Context(), "k"); local && (err != nil || !again.Allowed) {
				t.Errorf("%s: after the release: %+v, %v", what, again.Result, err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("%s: after it succeeded, Release = %v", what, err)
			}
		}
	}
}

// A release whose outcome is unknown may be sent again.
func TestReleaseAfterFailure(t *testing.T) {
	t.Parallel()
	store := &flakyStore{Store: memory.New()}
	l, err := limiter.NewConcurrency(store, "l", limiter.InFlight{Limit: 1, Hold: time.Minute}, limiter.FailOpen())
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.TryAcquire(t.Context(), "k")
	if err != nil || !lease.Allowed {
		t.Fatalf("%+v, %v", lease.Result, err)
	}
	store.err = limiter.ErrOutcomeUnknown
	if held, err := lease.Extend(t.Context(), time.Hour); held || !errors.Is(err, limiter.ErrOutcomeUnknown) {
		t.Errorf("Extend = %v, %v; want no answer of the failure policy", held, err)
	}
	for range 2 {
		if err := lease.Release(t.Context()); !errors.Is(err, limiter.ErrOutcomeUnknown) {
			t.Errorf("Release = %v; want no answer of the failure policy", err)
		}
	}
	store.err = nil
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if next, err := l.TryAcquire(t.Context(), "k"); err != nil || !next.Allowed {
		t.Errorf("after the release: %+v, %v", next.Result, err)
	}
}

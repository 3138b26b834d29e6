package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

// places is the policy of most tests of leases.
var places = limiter.InFlight{Limit: 2, Hold: time.Minute}

func newConcurrency(t *testing.T, store limiter.Store, opts ...limiter.Option) *limiter.Concurrency {
	t.Helper()
	c, err := limiter.NewConcurrency(store, "c", places, opts...)
	must(t, err)
	return c
}

func mustAcquire(t *testing.T, c *limiter.Concurrency) *limiter.Lease {
	t.Helper()
	lease, err := c.TryAcquire(t.Context(), "k")
	if err != nil || !lease.Allowed {
		t.Fatalf("TryAcquire: %+v, %v", lease.Result, err)
	}
	return lease
}

func TestNewConcurrency(t *testing.T) {
	t.Parallel()
	c := newConcurrency(t, memory.New())
	if c.Name() != "c" || c.Policy() != places {
		t.Errorf("%q, %v", c.Name(), c.Policy())
	}
	store := memory.New()
	for name, c := range map[string]struct {
		store  limiter.Store
		policy limiter.InFlight
		opts   []limiter.Option
	}{
		"no store":                  {nil, places, nil},
		"a transaction":             {inTransaction{store}, places, nil},
		"a fallback in one":         {store, places, []limiter.Option{limiter.FailLocal(inTransaction{store})}},
		"no places":                 {store, limiter.InFlight{Hold: time.Minute}, nil},
		"too many places":           {store, limiter.InFlight{Limit: 1001, Hold: time.Minute}, nil},
		"no hold":                   {store, limiter.InFlight{Limit: 1}, nil},
		"a hold below 1 ms":         {store, limiter.InFlight{Limit: 1, Hold: time.Millisecond - 1}, nil},
		"a hold above a day":        {store, limiter.InFlight{Limit: 1, Hold: limiter.MaxHold + 1}, nil},
		"a deny cache":              {store, places, []limiter.Option{limiter.WithDenyCache(10, 0)}},
		"a longest wait of nothing": {store, places, []limiter.Option{limiter.WithMaxWait(0)}},
		"a nil option":              {store, places, []limiter.Option{nil}},
	} {
		_, err := limiter.NewConcurrency(c.store, "c", c.policy, c.opts...)
		testenv.ErrorIs(t, err, limiter.ErrInvalid, name)
	}
	for _, p := range []limiter.InFlight{{Limit: 1, Hold: time.Millisecond}, {Limit: 1000, Hold: limiter.MaxHold}} {
		testenv.Equal(t, testenv.ErrorOf(limiter.NewConcurrency(store, "c", p)), nil, "NewConcurrency with", p)
	}
	testenv.ErrorIs(t, testenv.ErrorOf(limiter.New(store, "c", places)), limiter.ErrInvalid, "New")
}

func TestLeasePolicies(t *testing.T) {
	t.Parallel()
	hour := limiter.InFlight{Limit: 1, Hold: time.Hour}
	for _, p := range []limiter.Policy{hour, limiter.PerHour(3), limiter.InFlight{}} {
		chosen := (&plans{policy: p}).option()
		lease, err := newConcurrency(t, memory.New(), chosen).TryAcquire(t.Context(), "k")
		if valid := p == hour; valid != (err == nil) || !valid && !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("a Concurrency by %v: %v", p, err)
		} else if valid && (lease.Length != time.Hour || lease.Limit != 1 || lease.Policy != p) {
			t.Errorf("%v: %+v", p, lease.Result)
		}
		_, err = newLimiter(t, memory.New(), limiter.PerHour(5), chosen).Allow(t.Context(), "k")
		testenv.ErrorIs(t, err, map[bool]error{false: limiter.ErrInvalid}[p == limiter.PerHour(3)], "a Limiter by", p)
	}
}

func TestLeaseTimes(t *testing.T) {
	t.Parallel()
	c := newConcurrency(t, memory.New())
	invalid := limiter.ErrInvalid
	for d, want := range map[time.Duration]error{
		-1: invalid, 0: invalid, time.Millisecond - 1: invalid, time.Millisecond: nil,
		limiter.MaxHold: nil, limiter.MaxHold + 1: invalid,
	} {
		lease, err := c.TryAcquireFor(t.Context(), fmt.Sprint(d), d)
		testenv.ErrorIs(t, err, want, "TryAcquireFor", d)
		testenv.ErrorIs(t, refunding(lease.Extend(t.Context(), d)), want, "Extend", d) // also if it is not held
	}
	for _, allowed := range []bool{false, true} {
		made := &limiter.Lease{Result: limiter.Result{Allowed: allowed}}
		if held, err := made.Extend(t.Context(), time.Second); held || err != nil || made.Release(t.Context()) != nil {
			t.Errorf("a Lease that no Concurrency returned: %v, %v", held, err)
		}
	}
}

// sentTo returns the kinds of the operations since the last call.
func sentTo(s *spyStore) (kinds []limiter.OpKind) {
	for _, op := range s.ops {
		kinds = append(kinds, op.Kind)
	}
	s.ops = nil
	return kinds
}

// A lease whose acquire had no outcome is released at once, and once more by its caller.
func TestAcquireOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	acquire, release := limiter.OpAcquire, limiter.OpRelease
	canceled := fmt.Errorf("%w: %w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown, context.DeadlineExceeded)
	policies := failurePolicies()
	policies["fallback"] = nil // the fallback fails, and not only the store
	for name, fail := range policies {
		for _, c := range []struct {
			err   error
			sends []limiter.OpKind // by TryAcquire
			again bool             // Release sends to the store
		}{
			{limiter.ErrOutcomeUnknown, []limiter.OpKind{acquire, release}, true},
			{canceled, []limiter.OpKind{acquire, release}, true},
			{limiter.ErrNotApplied, []limiter.OpKind{acquire}, false},
			{limiter.ErrMisconfigured, []limiter.OpKind{acquire}, false},
		} {
			t.Run(fmt.Sprint(name, " ", c.err), func(t *testing.T) {
				store := &spyStore{Store: memory.New(), err: c.err, only: acquire}
				first, fail := limiter.Store(store), fail
				source := limiter.SourceStore
				if name == "fallback" {
					first, fail, source = &spyStore{err: limiter.ErrNotApplied}, limiter.FailLocal(store), limiter.SourceLocal
				}
				var seen observed
				limit := 2 * time.Second
				if name == "open" {
					limit = 500 * time.Millisecond
				}
				con := newConcurrency(t, first, fail, limiter.WithTimeout(limit), seen.option())
				lease, err := con.TryAcquire(t.Context(), "k")
				passes := (name == "open" || name == "local") && limiter.StoreFailed(c.err)
				if lease.Allowed != passes || passes == errors.Is(err, c.err) {
					t.Errorf("%+v, %v", lease.Result, err)
				}
				testenv.Equal(t, lease.Length, map[bool]time.Duration{true: time.Minute}[passes && name == "local"], "Length")
				if id := store.ops[0].ID; id < 1 {
					t.Errorf("the lease has the ID %d", id)
				}
				if c.again && (store.ops[1].ID != store.ops[0].ID || store.ops[1].Timeout != min(limit, time.Second) || store.ended) {
					t.Errorf("the release after %+v is %+v", store.ops[0], store.ops[1])
				}
				acquired := store.ops[0]
				testenv.Equal(t, sentTo(store), c.sends, "sent")
				if n := len(seen); n != len(c.sends) || seen[n-1].Op != acquire || !errors.Is(seen[n-1].Err, c.err) || c.again && seen[0].Result.Source != source {
					t.Errorf("observed %+v", seen)
				}
				if held, err := lease.Extend(t.Context(), time.Hour); held != passes || err != nil {
					t.Errorf("Extend: %v, %v, want %v", held, err, passes)
				}
				for i := range 4 {
					if must(t, lease.Release(t.Context())); i == 1 && c.again { // the acquire gets there late
						_, err := store.Store.Do(t.Context(), acquired)
						must(t, err)
					}
				}
				testenv.Equal(t, len(sentTo(store)), map[bool]int{true: 3}[c.again], "operations until one released the place")
			})
		}
	}
}

func TestLeaseUnderFailurePolicies(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]limiter.Source{"open": limiter.SourcePolicy, "local": limiter.SourceLocal} {
		store := &spyStore{err: limiter.ErrNotApplied}
		c := newConcurrency(t, store, failurePolicies()[name])
		extend := func(l *limiter.Lease, want bool) {
			t.Helper()
			if held, err := l.Extend(t.Context(), time.Hour); held != want || err != nil {
				t.Errorf("%s: Extend: %v, %v, want %v", name, held, err, want)
			}
			testenv.Equal(t, sentTo(store), nil, name, "sent")
		}
		lease := mustAcquire(t, c)
		if lease.Source != source || lease.Taken != 1 {
			t.Errorf("%s: %+v", name, lease.Result)
		}
		sentTo(store)
		extend(lease, true)
		if name == "local" {
			if second := mustAcquire(t, c); second.Used != 2 || second.ResetAfter < 59*time.Minute {
				t.Errorf("the second lease of the fallback: %+v", second.Result)
			}
			if third, err := c.TryAcquire(t.Context(), "k"); err != nil || third.Allowed || third.Source != source {
				t.Errorf("the third lease of the fallback: %+v, %v", third.Result, err)
			}
		}
		sentTo(store)
		must(t, lease.Release(t.Context()))
		extend(lease, false) // and neither it nor the release is sent
		mustAcquire(t, c)    // in the place that was released
	}
}

func TestReleaseThatFails(t *testing.T) {
	t.Parallel()
	store := &spyStore{Store: memory.New()}
	c := newConcurrency(t, store, limiter.FailOpen()) // which gives neither a release nor an extension
	lease := mustAcquire(t, c)
	store.err = limiter.ErrOutcomeUnknown
	testenv.ErrorIs(t, refunding(lease.Extend(t.Context(), time.Hour)), limiter.ErrOutcomeUnknown, "Extend")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	testenv.ErrorIs(t, lease.Release(canceled), limiter.ErrCanceled, "Release after the end of its context")
	testenv.ErrorIs(t, lease.Release(t.Context()), limiter.ErrOutcomeUnknown, "Release")
	testenv.ErrorIs(t, c.Reset(t.Context(), "k"), limiter.ErrOutcomeUnknown, "Reset")
	store.err = nil
	must(t, c.Reset(t.Context(), "k")) // so that the next release finds nothing
	must(t, lease.Release(t.Context()))
	must(t, lease.Release(t.Context()))
	testenv.Equal(t, len(store.ops), 6, "operations: an acquire, an extension, two resets and two releases")
	if r, err := c.Peek(t.Context(), "k"); err != nil || r.Used != 0 {
		t.Errorf("Peek: %+v, %v", r, err)
	}
}

func TestOperationsOfPolicies(t *testing.T) {
	t.Parallel()
	for kind := limiter.OpTake; kind <= limiter.OpExtend; kind++ {
		ofLeases, ofBoth := kind >= limiter.OpAcquire, kind == limiter.OpLook || kind == limiter.OpReset
		for p, valid := range map[limiter.Policy]bool{places: ofLeases || ofBoth, limiter.PerHour(1): !ofLeases} {
			want := map[bool]error{false: errors.ErrUnsupported}[valid]
			testenv.ErrorIs(t, (&limiter.Op{Kind: kind, Policy: p}).Check(), want, kind, "by", p)
		}
	}
}

func TestObserverOfLeases(t *testing.T) {
	t.Parallel()
	var seen []string
	c := newConcurrency(t, memory.New(), limiter.WithKeyDigest([]byte("secret")), limiter.WithObserver(func(_ context.Context, d limiter.Decision) {
		seen = append(seen, fmt.Sprint(d.Op, d.Cost, d.Result.Allowed, d.Changed, d.Err))
	}))
	lease := mustAcquire(t, c)
	_, _ = lease.Extend(t.Context(), time.Hour)
	_ = lease.Release(t.Context())
	_, _ = c.Peek(t.Context(), "k")
	for _, key := range []string{"k", "unused"} {
		_ = c.Reset(t.Context(), key)
	}
	want := []string{"acquire 1 true false <nil>", "extend 1 true true <nil>", "release 1 true true <nil>", "look 1 true false <nil>", "reset 0 true true <nil>", "reset 0 true false <nil>"}
	testenv.Equal(t, seen, want, "observed")
}

// A refusal that lost a race finds a free place. It must not look like one that passes.
func TestLeaseThatLostARace(t *testing.T) {
	t.Parallel()
	c := newConcurrency(t, refusing(limiter.State{Now: 5, Row: limiter.Row{At: 4, Limit: 2}}))
	lease, err := c.TryAcquire(t.Context(), "k")
	want := limiter.Result{Limit: 2, Used: 2, RetryAfter: time.Microsecond, ResetAfter: time.Microsecond, Source: limiter.SourceStore, Policy: places}
	if err != nil || lease.Result != want {
		t.Errorf("%+v, %v; want %+v", lease.Result, err, want)
	}
}

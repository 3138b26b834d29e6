package storetest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// runLeases runs the cases of requests in flight, if the store knows leases.
func runLeases(t *testing.T, store limiter.Store) {
	_, err := store.Do(context.Background(), limiter.Op{
		Kind: limiter.OpLook, Name: "leases", Key: "k", Policy: limiter.InFlight{Limit: 1, Hold: s}, Cost: 1,
	})
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("the store knows no leases")
	}
	cases := randomLeaseCases
	if p, ok := store.(limiter.Provisional); !ok || !p.Provisional() { // on such a store there is no Concurrency
		cases = append(leaseCases, cases...)
	}
	runCases(t, store, cases)
}

// inFlight returns a Concurrency on the test's clock.
func (f *fixture) inFlight(limit int64, hold time.Duration, opts ...limiter.Option) *limiter.Concurrency {
	f.Helper()
	opts = append([]limiter.Option{limiter.WithClock(f.clock), limiter.WithTimeout(timeLimit)}, opts...)
	return f.concurrency(limit, hold, opts...)
}

// concurrency returns a Concurrency with a name that only this test uses.
func (f *fixture) concurrency(limit int64, hold time.Duration, opts ...limiter.Option) *limiter.Concurrency {
	f.Helper()
	c, err := limiter.NewConcurrency(f.store, f.prefix+"c", limiter.InFlight{Limit: limit, Hold: hold}, opts...)
	f.ok(err, "NewConcurrency")
	return c
}

// acquire takes a place of the key "k" for d.
func (f *fixture) acquire(c *limiter.Concurrency, d time.Duration) *limiter.Lease {
	f.Helper()
	lease, err := c.TryAcquireFor(context.Background(), "k", d)
	if err != nil || !lease.Allowed || lease.Length != d || lease.RetryAfter != 0 || lease.Taken != 1 {
		f.Fatalf("TryAcquireFor(%v) at %v: %+v, %v, want a lease", d, f.now.Sub(epoch), lease.Result, err)
	}
	return lease
}

// full checks that the key "k" has no place, and what a refusal says.
func (f *fixture) full(c *limiter.Concurrency, used int64, retryAfter, resetAfter time.Duration) {
	f.Helper()
	lease, err := c.TryAcquire(context.Background(), "k")
	want := limiter.Result{Limit: lease.Limit, Used: used, RetryAfter: retryAfter, ResetAfter: resetAfter, Source: limiter.SourceStore, Policy: lease.Policy}
	if err != nil || lease.Result != want || lease.Length != 0 {
		f.Fatalf("TryAcquire at %v: %+v, %v, want %+v", f.now.Sub(epoch), lease.Result, err, want)
	}
	f.ok(lease.Release(context.Background()), "Release")
	if peek, err := c.Peek(context.Background(), "k"); err != nil || peek != want {
		f.Fatalf("Peek at %v: %+v, %v, want %+v", f.now.Sub(epoch), peek, err, want)
	}
}

// held checks how many places of the key "k" are taken.
func (f *fixture) held(c *limiter.Concurrency, used int64) {
	f.Helper()
	if r, err := c.Peek(context.Background(), "k"); err != nil || r.Used != used || r.Remaining != max(0, r.Limit-used) || r.Allowed != (used < r.Limit) {
		f.Fatalf("Peek at %v: %+v, %v, want %d places taken", f.now.Sub(epoch), r, err, used)
	}
}

func (f *fixture) extend(l *limiter.Lease, d time.Duration, want bool) {
	f.Helper()
	if held, err := l.Extend(context.Background(), d); err != nil || held != want {
		f.Fatalf("Extend(%v) at %v: %v, %v, want %v", d, f.now.Sub(epoch), held, err, want)
	}
}

var leaseCases = []testCase{
	{
		"places are taken and released",
		"at most Limit leases of a key are held; a refusal says when one ends; a release frees the place of its own lease once",
		func(f *fixture) {
			ctx := context.Background()
			c := f.inFlight(2, 10*s)
			a := f.acquire(c, 10*s)
			f.at(s)
			b := f.acquire(c, 5*s)
			if b.Used != 2 || b.Remaining != 0 || b.ResetAfter != 9*s {
				f.Errorf("the second lease: %+v", b.Result)
			}
			f.full(c, 2, 5*s, 9*s)
			f.ok(b.Release(ctx), "Release")
			f.held(c, 1)
			d := f.acquire(c, 10*s)
			f.ok(b.Release(ctx), "Release") // again
			f.full(c, 2, 9*s, 10*s)
			f.ok(a.Release(ctx), "Release")
			f.ok(d.Release(ctx), "Release")
			f.held(c, 0)
			other, err := c.TryAcquire(ctx, "another key")
			if err != nil || other.Used != 1 {
				f.Errorf("another key: %+v, %v", other.Result, err)
			}
		},
	},
	{
		"a lease ends by itself",
		"a place is free from the instant at which its lease ends, and a late release does not free the place of the next lease",
		func(f *fixture) {
			c := f.inFlight(1, 10*s)
			late := f.acquire(c, 10*s)
			f.at(10*s - 1)
			f.full(c, 1, 1, 1)
			f.at(10 * s)
			f.held(c, 0)
			f.acquire(c, limiter.MaxHold)
			f.ok(late.Release(context.Background()), "Release")
			f.extend(late, s, false)
			f.full(c, 1, limiter.MaxHold, limiter.MaxHold)
		},
	},
	{
		"Extend",
		"Extend makes a lease end later or earlier, counted from now, unless it has ended, was released or reset",
		func(f *fixture) {
			ctx := context.Background()
			c := f.inFlight(2, 10*s)
			a, b := f.acquire(c, 10*s), f.acquire(c, 20*s)
			f.at(5 * s)
			f.extend(a, 30*s, true)
			f.full(c, 2, 15*s, 30*s)
			f.extend(a, s, true)
			f.full(c, 2, s, 15*s)
			f.at(6 * s)
			f.extend(a, 10*s, false)
			f.held(c, 1)
			f.ok(b.Release(ctx), "Release")
			f.extend(b, 10*s, false)
			d := f.acquire(c, 10*s)
			f.ok(c.Reset(ctx, "k"), "Reset")
			f.extend(d, 10*s, false)
			f.held(c, 0)
		},
	},
	{
		"a lower limit",
		"a lower limit ends no lease, and refuses until so many have ended or were released that one fits",
		func(f *fixture) {
			limit := int64(4)
			c := f.inFlight(4, 10*s, limiter.WithPolicyFor(func(context.Context, string) (limiter.Policy, error) {
				return limiter.InFlight{Limit: limit, Hold: 10 * s}, nil
			}))
			var leases []*limiter.Lease
			for i := range 4 {
				leases = append(leases, f.acquire(c, time.Duration(10+i)*s))
			}
			limit = 2
			f.full(c, 4, 12*s, 13*s)
			f.ok(leases[0].Release(context.Background()), "Release")
			f.full(c, 3, 12*s, 13*s)
			f.at(12 * s)
			f.held(c, 1)
			f.acquire(c, s)
			limit = 3
			f.acquire(c, s)
			f.full(c, 3, s, s)
		},
	},
	{
		"Reset frees all places",
		"a reset frees all places of its key, and releases of leases from before it free nothing",
		func(f *fixture) {
			c := f.inFlight(2, 10*s)
			a := f.acquire(c, 10*s)
			f.acquire(c, 10*s)
			f.ok(c.Reset(context.Background(), "k"), "Reset")
			f.acquire(c, 10*s)
			f.acquire(c, 10*s)
			f.ok(a.Release(context.Background()), "Release")
			f.full(c, 2, 10*s, 10*s)
		},
	},
	{
		"a clock that is stepped",
		"leases end with the clock; one that ends later than any lease can has ended",
		func(f *fixture) {
			c := f.inFlight(1, limiter.MaxHold)
			f.at(10 * days)
			f.acquire(c, limiter.MaxHold)
			f.at(10*days - 2*s)
			f.full(c, 1, limiter.MaxHold+2*s, limiter.MaxHold+2*s)
			f.at(10*days - 2*s - 1)
			f.held(c, 0)
			f.acquire(c, s)
			f.full(c, 1, s, s)
			f.at(20 * days)
			f.held(c, 0)
		},
	},
	{
		"callers at once",
		"however many callers take and release places at once, never more than Limit are held, and all are free in the end",
		func(f *fixture) {
			const callers, rounds, limit = 16, 30, 3
			c := f.concurrency(limit, time.Hour, limiter.WithTimeout(timeLimit))
			var running, granted atomic.Int64
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for range rounds {
						lease, err := c.TryAcquire(context.Background(), "k")
						if err != nil {
							f.Errorf("TryAcquire: %v", err)
							return
						}
						if lease.Allowed {
							granted.Add(1)
							if n := running.Add(1); n > limit {
								f.Errorf("%d leases are held", n)
							}
							runtime.Gosched()
							running.Add(-1)
						}
						if err := lease.Release(context.Background()); err != nil {
							f.Errorf("Release: %v", err)
						}
					}
				})
			}
			all.Wait()
			if n := granted.Load(); n < limit {
				f.Errorf("%d of %d leases were granted", n, callers*rounds)
			}
			f.held(c, 0)
		},
	},
	{
		"Sweep keeps leases that are held",
		"a row of leases is removed one hour after its last lease has ended, and not before",
		func(f *fixture) {
			sw := f.sweeper()
			now := f.storeNow()
			c := f.inFlight(2, s)
			for i, key := range []string{"old", "held"} {
				f.now = now.Add(-2 * time.Hour)
				for _, d := range []time.Duration{s, time.Duration(1+2*i) * time.Hour} {
					_, err := c.TryAcquireFor(context.Background(), key, d-s/2)
					f.ok(err, "TryAcquireFor")
				}
			}
			f.sweepAll(sw, 1000)
			f.now = now.Add(-2*time.Hour + s/4)
			for key, used := range map[string]int64{"old": 0, "held": 2} {
				if r, err := c.Peek(context.Background(), key); err != nil || r.Used != used {
					f.Errorf("after Sweep, %s: %+v, %v, want %d leases", key, r, err, used)
				}
			}
		},
	},
}

var randomLeaseCases = []testCase{
	{
		"random operations on leases",
		"a store returns for each operation what Op.Apply returns, whatever came before",
		func(f *fixture) {
			h := f.history([]limiter.Policy{
				limiter.InFlight{Limit: 3, Hold: s}, limiter.InFlight{Limit: 1, Hold: s}, limiter.InFlight{Limit: 5, Hold: s},
			})
			h.run(500, 0)
		},
	},
}

// leaseOperation makes an operation on a lease of a take.
func (h *history) leaseOperation(op limiter.Op) limiter.Op {
	kinds := []limiter.OpKind{limiter.OpAcquire, limiter.OpAcquire, limiter.OpAcquire, limiter.OpRelease, limiter.OpExtend, limiter.OpLook, limiter.OpReset}
	if op.Kind = kinds[h.rnd.IntN(len(kinds))]; op.Kind == limiter.OpReset && h.rnd.IntN(4) > 0 {
		op.Kind = limiter.OpRelease
	}
	op.Cost, op.ID = 1, 1+h.rnd.Int64N(8)
	op.Hold = time.Duration(1+h.rnd.Int64N(20)) * s
	return op
}

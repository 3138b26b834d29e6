package prove_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/leases"
)

// A holder is a process whose callers hold leases of one key until the process is killed. It prints each
// event before it continues. So the test knows of every release before it is sent.
type holder struct {
	DSN  string // of a PostgreSQL database, or
	Path string // of a SQLite file
	Key  string
	Seed uint64
}

const (
	holderCallers = 10 // how many callers a holder has: more than there are places
	leaseLimit    = 5
	longestLease  = 500 * time.Millisecond // the longest time for which a caller acquires or extends a lease
)

func init() { register("holder", holdUntilKilled) }

func holdUntilKilled(h holder) error {
	ctx := context.Background()
	w := worker{DSN: h.DSN, Path: h.Path}
	store, stop, err := w.open(ctx)
	for began := time.Now(); err != nil && time.Since(began) < waitLimit; store, stop, err = w.open(ctx) {
		wait(ctx, interval) // the connections are cut
	}
	if err != nil {
		return err
	}
	defer stop()
	c, err := newLeases(leases.Recorder{Store: store, Note: reporter[leases.Event]()})
	if err != nil {
		return err
	}
	failed := make(chan error)
	for i := range holderCallers {
		go func() { failed <- holdLeases(ctx, workerOf(h.Seed, i), c, h.Key) }()
	}
	return <-failed
}

// newLeases returns a Concurrency on a store that reports the events of leases.
func newLeases(store leases.Recorder, opts ...limiter.Option) (*limiter.Concurrency, error) {
	return limiter.NewConcurrency(store, "leases", limiter.InFlight{Limit: leaseLimit, Hold: longestLease}, opts...)
}

// holdLeases acquires leases until ctx ends. It releases most of them in time, some too late, and some never.
func holdLeases(ctx context.Context, r *rand.Rand, c *limiter.Concurrency, key string) error {
	some := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	for ctx.Err() == nil {
		hold := longestLease/5 + some(longestLease*4/5)
		lease, err := c.TryAcquireFor(ctx, key, hold)
		if errors.Is(err, limiter.ErrInvalid) || errors.Is(err, limiter.ErrMisconfigured) {
			return err
		}
		if !lease.Allowed {
			wait(ctx, time.Millisecond+some(10*time.Millisecond))
			continue
		}
		switch r.IntN(8) {
		case 0:
			continue
		case 1:
			wait(ctx, hold+some(longestLease/10))
		case 2:
			wait(ctx, some(hold))
			if held, err := lease.Extend(ctx, longestLease); held && err == nil {
				wait(ctx, some(longestLease))
			}
		default:
			wait(ctx, some(hold/2))
		}
		for range 3 {
			if lease.Release(ctx) == nil {
				break
			}
		}
	}
	return nil
}

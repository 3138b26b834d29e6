package prove_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/leases"
)

// steppedClock is a clock that can be set. A [cluster.Clock] is one.
type steppedClock interface {
	Set(ahead time.Duration)
	Ahead() time.Duration
}

// ownClock is a store, and the clock of all operations on it. It sends one operation at a time, so that they
// read the clock in the order in which they are carried out.
type ownClock struct {
	limiter.Store
	mu    sync.Mutex
	ahead time.Duration
}

func (c *ownClock) Set(ahead time.Duration) { c.ahead = ahead }
func (c *ownClock) Ahead() time.Duration    { return c.ahead }

// Do implements [limiter.Store].
func (c *ownClock) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	op.At = time.Now().Add(c.ahead).UnixNano()
	return c.Store.Do(ctx, op)
}

// A step of the store's clock moves the ends of all leases. Apart from that, at most the limit of leases is
// held, and no acquire is refused while a place is free.
func TestLeasesWhenClockSteps(t *testing.T) {
	sizes := campaign.Sizes{CI: 2, Nightly: 30, Release: 100}
	t.Run("on PostgreSQL", func(t *testing.T) {
		server, clock := cluster.NewWithClock(t, durable...)
		migrate(t, server.DSN())
		of := stores(t, 2, server.DSN()+"&pool_max_conns=4")
		proof.Rounds(t, "clock steps of leases on PostgreSQL", sizes, func(t *testing.T, r *campaign.Round) {
			stepLeases(t, r, clock, of...)
		})
	})
	t.Run("on SQLite", func(t *testing.T) {
		store := openFile(t, newFile(t))
		defer store.Close()
		clock := &ownClock{Store: store}
		proof.Rounds(t, "clock steps of leases on SQLite", sizes, func(t *testing.T, r *campaign.Round) {
			stepLeases(t, r, clock, clock)
		})
	})
}

// stepLeases steps the clock of stores while callers hold leases, each time when no operation is under way.
func stepLeases(t *testing.T, r *campaign.Round, clock steppedClock, of ...limiter.Store) {
	t.Helper()
	var gate sync.RWMutex
	l := &leaseRound{told: &leases.Ledger{}}
	l.told.Step(leaseLimit, 0, clock.Ahead())
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range 2 * holderCallers {
		store := leases.Recorder{Store: of[i%len(of)], Note: l.told.Note, Gate: &gate}
		c, err := newLeases(store, limiter.WithTimeout(waitLimit))
		must(t, err)
		own := workerOf(r.Rand.Uint64(), i)
		callers.Go(func() {
			if err := holdLeases(ctx, own, c, keyOf(r.Seed)); err != nil {
				t.Error(err)
			}
		})
	}
	for range stepsARound {
		wait(t.Context(), 100*time.Millisecond)
		pause(t.Context(), r, 100*time.Millisecond)
		gate.Lock()
		before := clock.Ahead()
		clock.Set(clockStep(r.Rand, before))
		l.told.Step(leaseLimit, time.Now().UnixNano(), clock.Ahead()-before)
		gate.Unlock()
		r.Count(campaign.ClockSteps, 1)
	}
	pause(t.Context(), r, 150*time.Millisecond)
	stop()
	callers.Wait()
	l.judge(t, r)
}

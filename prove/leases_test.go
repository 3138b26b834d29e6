package prove_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/leases"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// leaseRound is a round of faults in the processes that hold leases.
type leaseRound struct {
	told    leases.Ledger
	holder  holder // what to start holders with
	holders []*child
}

// start starts another holder.
func (l *leaseRound) start(t *testing.T, r *campaign.Round) {
	t.Helper()
	l.holder.Seed = r.Rand.Uint64()
	l.holders = append(l.holders, startReporting(t, "holder", l.holder, l.told.Note))
}

// A process that is killed releases none of its leases.
func (l *leaseRound) killHolder(t *testing.T, r *campaign.Round) {
	l.holders[0].kill(t)
	r.Count(campaign.ProcessKills, 1)
	l.holders = l.holders[1:]
	l.start(t, r)
}

// While the process is frozen, all its leases end. Then it releases the old leases.
func (l *leaseRound) freezeHolder(t *testing.T, r *campaign.Round) {
	process := l.holders[0].cmd.Process
	must(t, process.Signal(syscall.SIGSTOP))
	wait(t.Context(), longestLease+100*time.Millisecond)
	must(t, process.Signal(syscall.SIGCONT))
	r.Count(campaign.Freezes, 1)
}

// run runs the faults in any order beside two holders. Then it kills the holders, and takes all places.
func (l *leaseRound) run(t *testing.T, r *campaign.Round, open func() limiter.Store, faults ...func(*testing.T, *campaign.Round)) {
	l.start(t, r)
	l.start(t, r)
	if !await(t, waitLimit, func() bool { return l.told.Counts()[leases.Acquired] >= leaseLimit }) {
		t.Fatalf("the holders acquire nothing: %v", l.told.Counts())
	}
	faults = append(faults, l.killHolder, l.freezeHolder)
	for _, i := range r.Rand.Perm(len(faults)) {
		pause(t.Context(), r, 300*time.Millisecond)
		faults[i](t, r)
	}
	pause(t.Context(), r, 300*time.Millisecond)
	for tries := 0; l.told.Counts()[leases.Late] == 0 && tries < 10; tries++ { // the frozen holder held none
		l.freezeHolder(t, r)
		pause(t.Context(), r, 300*time.Millisecond)
	}
	for _, h := range l.holders {
		h.kill(t)
	}
	l.takeAll(t, r, open())
	testenv.Equal(t, l.told.Counts()[leases.Late] > 0, true, "a lease was released after its end")
	l.judge(t, r)
}

// takeAll takes all places, also those of the killed holders. The ledger checks that none was free at a refusal.
func (l *leaseRound) takeAll(t *testing.T, r *campaign.Round, store limiter.Store) {
	c, err := newLeases(leases.Recorder{Store: store, Note: l.told.Note})
	must(t, err)
	began := time.Now()
	for n := 0; n < leaseLimit; {
		lease, err := c.TryAcquireFor(t.Context(), l.holder.Key, time.Minute)
		must(t, err)
		if lease.Allowed {
			n++
		} else {
			wait(t.Context(), time.Millisecond)
		}
		if time.Since(began) > longestLease+recovery {
			t.Fatalf("%d of %d places are free %v after all processes were killed", n, leaseLimit, time.Since(began))
		}
	}
	r.Most("until all places of killed processes were free", time.Since(began))
	if lease, err := c.TryAcquire(t.Context(), l.holder.Key); err != nil || lease.Allowed {
		t.Errorf("when all places are taken, an acquire is %+v, %v", lease.Result, err)
	}
}

func (l *leaseRound) judge(t *testing.T, r *campaign.Round) {
	held, wrong := l.told.Check(leaseLimit)
	r.None(campaign.OverAdmitted, int64(max(0, held-leaseLimit)))
	testenv.Equal(t, held >= leaseLimit, true, held, "leases were held at most, want all of", leaseLimit)
	r.None("wrong answers about leases", int64(len(wrong)))
	for _, text := range wrong[:min(len(wrong), 5)] {
		t.Log(text)
	}
	counts := l.told.Counts()
	for _, what := range []string{leases.Acquired, leases.Late} {
		r.Count(what, counts[what])
	}
	for _, class := range []string{outcome.Carried, outcome.Refused, outcome.Unknown} {
		r.Count(campaign.Operations, counts[class])
	}
	r.Count(campaign.Unknown, counts[outcome.Unknown])
}

// At most the limit of leases is held, whatever faults their processes have. All places are free when the leases end.
func TestLeases(t *testing.T) {
	t.Run("on PostgreSQL", func(t *testing.T) {
		server := newServer(t)
		front := cutproxy.New(t, server.Port())
		dsn := dsnAt(front.Port())
		proof.Rounds(t, "leases on PostgreSQL", campaign.Sizes{CI: 2, Nightly: 60, Release: 200}, func(t *testing.T, r *campaign.Round) {
			l := &leaseRound{holder: holder{DSN: dsn, Key: keyOf(r.Seed)}}
			l.run(t, r, func() limiter.Store { return openStore(t, server.DSN()) },
				func(t *testing.T, r *campaign.Round) { // cuts at any byte
					for range 10 {
						front.Cut()
						pause(t.Context(), r, 50*time.Millisecond)
					}
				},
				func(t *testing.T, r *campaign.Round) {
					front.Stall()
					pause(t.Context(), r, longestLease)
					front.Cut()
				},
				func(_ *testing.T, r *campaign.Round) {
					server.Kill()
					r.Count(campaign.ClusterKills, 1)
					server.Start()
				})
		})
	})
	t.Run("on SQLite", func(t *testing.T) {
		path := newFile(t)
		store := openFile(t, path)
		defer store.Close()
		proof.Rounds(t, "leases on SQLite", campaign.Sizes{CI: 2, Nightly: 60, Release: 200}, func(t *testing.T, r *campaign.Round) {
			l := &leaseRound{holder: holder{Path: path, Key: keyOf(r.Seed)}}
			l.run(t, r, func() limiter.Store { return store }, l.killHolder)
		})
	})
}

// steppedClock is a clock that can be set. A [cluster.Clock] is one.
type steppedClock interface {
	Set(ahead time.Duration)
	Ahead() time.Duration
}

// ownClock is a store and its clock. Operations go one at a time, so that they read the clock in their order.
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

// A step of the store's clock moves the ends of all leases. At most the limit is held, and no free place is refused.
func TestLeasesWhenClockSteps(t *testing.T) {
	sizes := campaign.Sizes{CI: 2, Nightly: 30, Release: 100}
	t.Run("on PostgreSQL", func(t *testing.T) {
		server, clock := newServerWithClock(t)
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
	var gate sync.RWMutex
	l := &leaseRound{}
	l.told.Step(leaseLimit, 0, clock.Ahead())
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range 2 * holderCallers {
		store := leases.Recorder{Store: of[i%len(of)], Note: l.told.Note, Gate: &gate}
		c, err := newLeases(store, limiter.WithTimeout(waitLimit))
		must(t, err)
		own := workerOf(r.Rand.Uint64(), i)
		callers.Go(func() {
			testenv.Equal(t, holdLeases(ctx, own, c, keyOf(r.Seed)), nil, "the error of a caller")
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

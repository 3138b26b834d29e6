package prove_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/leases"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// leaseRound is a round of faults in the processes that hold leases.
type leaseRound struct {
	told    *leases.Ledger
	start   func(t *testing.T) *child // of another holder
	holders []*child
}

// A process that is killed releases none of its leases.
func (l *leaseRound) killHolder(t *testing.T, r *campaign.Round) {
	t.Helper()
	l.holders[0].kill(t)
	r.Count(campaign.ProcessKills, 1)
	l.holders = append(l.holders[1:], l.start(t))
}

// While the process is frozen, all its leases end, and others take the places. Then it releases the old
// leases.
func (l *leaseRound) freezeHolder(t *testing.T, r *campaign.Round) {
	t.Helper()
	process := l.holders[0].cmd.Process
	must(t, process.Signal(syscall.SIGSTOP))
	wait(t.Context(), longestLease+100*time.Millisecond)
	must(t, process.Signal(syscall.SIGCONT))
	r.Count(campaign.Freezes, 1)
}

// run runs the faults in any order beside two holders. Then it kills the holders, and takes all places.
func (l *leaseRound) run(t *testing.T, r *campaign.Round, open func() limiter.Store, key string, faults ...func(*testing.T, *campaign.Round)) {
	t.Helper()
	l.holders = []*child{l.start(t), l.start(t)}
	for began := time.Now(); l.told.Counts()[leases.Acquired] < leaseLimit; wait(t.Context(), interval) {
		if time.Since(began) > waitLimit {
			t.Fatalf("the holders acquire nothing: %v", l.told.Counts())
		}
	}
	faults = append(faults, l.killHolder, l.freezeHolder)
	for _, i := range r.Rand.Perm(len(faults)) {
		pause(t.Context(), r, 300*time.Millisecond)
		faults[i](t, r)
	}
	pause(t.Context(), r, 300*time.Millisecond)
	for _, h := range l.holders {
		h.kill(t)
	}
	l.takeAll(t, r, open(), key)
	if l.told.Counts()[leases.Late] == 0 {
		t.Error("no lease was released after its end")
	}
	l.judge(t, r)
}

// takeAll acquires leases until all places are taken. The ledger checks that no place was free at a refusal.
// The places of the killed holders are free when their leases end.
func (l *leaseRound) takeAll(t *testing.T, r *campaign.Round, store limiter.Store, key string) {
	t.Helper()
	c, err := newLeases(leases.Recorder{Store: store, Note: l.told.Note})
	must(t, err)
	began := time.Now()
	for n := 0; n < leaseLimit; {
		lease, err := c.TryAcquireFor(t.Context(), key, time.Minute)
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
	if lease, err := c.TryAcquire(t.Context(), key); err != nil || lease.Allowed {
		t.Errorf("when all places are taken, an acquire is %+v, %v", lease.Result, err)
	}
}

func (l *leaseRound) judge(t *testing.T, r *campaign.Round) {
	t.Helper()
	held, wrong := l.told.Check(leaseLimit)
	r.None(campaign.OverAdmitted, int64(max(0, held-leaseLimit)))
	if held < leaseLimit {
		t.Errorf("%d leases were held at most, want all %d", held, leaseLimit)
	}
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

// The number of leases that are held never exceeds the limit, whatever faults their processes have. All
// places are free when the leases end.
func TestLeases(t *testing.T) {
	t.Run("on PostgreSQL", func(t *testing.T) {
		server := cluster.New(t, durable...)
		migrate(t, server.DSN())
		front := cutproxy.New(t, server.Port())
		dsn := dsnAt(front.Port())
		proof.Rounds(t, "leases on PostgreSQL", campaign.Sizes{CI: 2, Nightly: 60, Release: 200}, func(t *testing.T, r *campaign.Round) {
			key := keyOf(r.Seed)
			l := &leaseRound{told: &leases.Ledger{}}
			l.start = func(t *testing.T) *child {
				return startReporting(t, "holder", holder{DSN: dsn, Key: key, Seed: r.Rand.Uint64()}, l.told.Note)
			}
			l.run(t, r, func() limiter.Store { return openStore(t, server.DSN()) }, key,
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
			key := keyOf(r.Seed)
			l := &leaseRound{told: &leases.Ledger{}}
			l.start = func(t *testing.T) *child {
				return startReporting(t, "holder", holder{Path: path, Key: key, Seed: r.Rand.Uint64()}, l.told.Note)
			}
			l.run(t, r, func() limiter.Store { return store }, key, l.killHolder)
		})
	})
}

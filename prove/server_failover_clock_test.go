package prove_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/kinds"
)

// A failover to a server with another clock is a step of the clock that decides. One that
// is behind grants nothing more; one that is ahead grants what comes back in the time that
// has passed by it.
func TestFailoverToAnotherClock(t *testing.T) {
	primary, clock := cluster.NewWithClock(t, durable...)
	migrate(t, primary.DSN())
	front := cutproxy.New(t, primary.Port())
	of := stores(t, 4, dsnAt(front.Port())+"&pool_max_conns=1")
	const month = 30 * 24 * time.Hour
	proof.Rounds(t, "failovers to a standby with another clock", campaign.Sizes{CI: 1, Nightly: 10, Release: 30}, func(t *testing.T, r *campaign.Round) {
		h := newTimeline(r.Seed, clock.Now())
		began, made := time.Now(), []time.Duration(nil)
		for _, skew := range []time.Duration{-distance(r.Rand, month), distance(r.Rand, month)} {
			standby, its := primary.StandbyWithClock(primary.Port(), clock.Ahead()+skew)
			awaitSync(t, primary)
			stop := h.callers(t.Context(), r.Rand, 16, of)
			h.untilUsedUp(t)
			h.gate.Lock()
			h.failOver(t, r, of, primary, standby, front)
			h.segment(its.Now())
			h.gate.Unlock()
			wait(t.Context(), 200*time.Millisecond)
			stop()
			primary.Discard()
			primary, clock, made = standby, its, append(made, skew)
			r.Count(campaign.Failovers, 1)
		}
		h.owing(nil)
		h.judge(t, r, true, time.Since(began), made)
		h.comeBack(t, r, of[0])
	})
}

// untilUsedUp waits until each key that does not come back at once was refused, so that
// whatever is granted too much shows.
func (h *timeline) untilUsedUp(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); ; wait(t.Context(), interval) {
		h.mu.Lock()
		left := slices.IndexFunc(h.keys, func(k *watched) bool {
			return kinds.Lockout(k.policy) > time.Second && k.segments[len(k.segments)-1].Refused == 0
		})
		h.mu.Unlock()
		if left < 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: a key is never used up", h.keys[left].name)
		}
	}
}

// failOver has a standby take over from a server that is killed while no statement is under
// way, and waits until each store has found it.
func (h *timeline) failOver(t *testing.T, r *campaign.Round, of []limiter.Store, primary, standby *cluster.Cluster, front *cutproxy.Proxy) {
	t.Helper()
	h.settle(t, primary.DSN())
	primary.Kill()
	front.Point(standby.Port())
	standby.Promote()
	newLoad(t, of).recovers(t, r, time.Now())
}

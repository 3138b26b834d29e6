package prove_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/kinds"
)

// dsnAt is that of the superuser at a port of the loopback interface.
func dsnAt(port int) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
}

func until(t testing.TB, dsn, sql string) {
	t.Helper()
	if !await(t, waitLimit, func() bool { return query[bool](t, dsn, sql) }) {
		t.Fatalf("after %v it is still false: %s", waitLimit, sql)
	}
}

// awaitSync makes a server wait for its standby with each commit from now on.
func awaitSync(t *testing.T, primary *cluster.Cluster) {
	t.Helper()
	execute(t, primary.DSN(), "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	until(t, primary.DSN(), "SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'")
}

func TestFailoverToSyncStandby(t *testing.T) {
	primary := newServer(t)
	// One caller has a proxy of its own, so that its connections can be counted.
	front, side := cutproxy.New(t, primary.Port()), cutproxy.New(t, primary.Port())
	load := newLoad(t, stores(t, 2, dsnAt(front.Port())+"&pool_max_conns=8"))
	own := openStore(t, dsnAt(side.Port())+"&pool_max_conns=1")
	one, patient := lastingOf(t, own)[0], lastingOf(t, own, limiter.WithTimeout(recovery))[0]
	proof.Rounds(t, "failovers to a synchronous standby", campaign.Sizes{CI: 1, Nightly: 20, Release: 60}, func(t *testing.T, r *campaign.Round) {
		standby := primary.Standby(primary.Port())
		awaitSync(t, primary)
		stop := load.begin(t, r, primary.DSN())
		pause(t.Context(), r, 300*time.Millisecond)
		primary.Kill()
		front.Point(standby.Port())
		side.Point(standby.Port())
		// Until the promotion each caller finds a read-only server, and connects anew each time. That keeps it busy.
		const failures = 3
		before := side.Accepted()
		for range failures {
			load.untilFails(t, patient, recovery, failing, func(err error) bool { return sqlState(err) == readOnly })
		}
		if n := side.Accepted() - before; n < failures {
			t.Errorf("%d takes met a read-only server on %d connections, want a new one each", failures, n)
		}
		standby.Promote()
		began := time.Now()
		load.recovers(t, r, began)
		load.grants(t, r, one, "recovery", began)
		stop()
		load.exact(t, r, standby.DSN())
		r.Count(campaign.Failovers, 1)
		primary.Discard()
		primary = standby
	})
}

func TestFailoverToAsyncStandby(t *testing.T) {
	primary := newServer(t)
	front, replication := cutproxy.New(t, primary.Port()), cutproxy.New(t, primary.Port())
	load := newLoad(t, stores(t, 2, dsnAt(front.Port())+"&pool_max_conns=8"))
	proof.Rounds(t, "failovers to an asynchronous standby", campaign.Sizes{CI: 1, Nightly: 20, Release: 25}, func(t *testing.T, r *campaign.Round) {
		replication.Point(primary.Port())
		standby := primary.Standby(replication.Port())
		until(t, primary.DSN(), "SELECT count(*) > 0 FROM pg_stat_replication WHERE state = 'streaming'")
		stop := load.begin(t, r, primary.DSN())
		pause(t.Context(), r, 300*time.Millisecond)
		behind := time.Now()
		replication.Stall()
		pause(t.Context(), r, 200*time.Millisecond)
		primary.Kill()
		stop() // a lost take can be granted again, and must not count as over-admitted
		replication.Cut()
		standby.Promote()
		front.Point(standby.Port())
		began := time.Now()
		v := load.compare(t, standby.DSN())
		r.Count(campaign.LostAsyncFailover, v.Lost)
		r.Count(campaign.Failovers, 1)
		// A busy machine may need some time for what was on its way.
		if early := behind.Sub(v.Oldest); v.Lost > 0 && early > 200*time.Millisecond {
			t.Errorf("a take was lost that was acknowledged %v before the standby fell behind", early)
		}
		judgeKept(t, r, load.ledger, v)
		load.recovers(t, r, began)
		primary.Discard()
		primary = standby
	})
}

// A DSN may ask for the server that accepts writes. With remote_apply nothing is lost either.
func TestFailoverWithinDSN(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, primary *cluster.Cluster){
		"the primary is killed": func(_ *testing.T, primary *cluster.Cluster) { primary.Kill() },
		"the primary only reads": func(t *testing.T, primary *cluster.Cluster) {
			setting("default_transaction_read_only", "on")(t, &target{server: primary})
		},
	} {
		t.Run(name, func(t *testing.T) {
			primary := newServer(t, "synchronous_commit=remote_apply")
			proof.Rounds(t, "failovers within a DSN: "+name, campaign.Sizes{CI: 1, Nightly: 10, Release: 30}, func(t *testing.T, r *campaign.Round) {
				standby := primary.Standby(primary.Port())
				awaitSync(t, primary)
				load := newLoad(t, stores(t, 2, fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable"+
					"&target_session_attrs=read-write&pool_max_conns=8", primary.Port(), standby.Port())))
				load.renew(t, primary.DSN())
				stop := load.start(t.Context(), r.Rand, 64)
				load.recovers(t, r, time.Now())
				pause(t.Context(), r, 300*time.Millisecond)
				end(t, primary)
				for _, of := range load.limiters { // a store looks for a server when it makes a connection
					load.untilFails(t, of[0], waitLimit, failing, func(err error) bool {
						_, refused := errors.AsType[*pgconn.ConnectError](err)
						return refused
					})
				}
				standby.Promote()
				load.recovers(t, r, time.Now())
				stop()
				load.exact(t, r, standby.DSN())
				r.Count(campaign.Failovers, 1)
				primary.Discard()
				primary = standby
			})
		})
	}
}

// A failover to a server with another clock is a step of the clock that decides. A clock that is behind
// grants nothing more. A clock that is ahead grants what comes back in the time that it skips.
func TestFailoverToAnotherClock(t *testing.T) {
	primary, clock := newServerWithClock(t)
	front := cutproxy.New(t, primary.Port())
	of := stores(t, 4, dsnAt(front.Port())+"&pool_max_conns=1")
	const month = 30 * 24 * time.Hour
	proof.Rounds(t, "failovers to a standby with another clock", campaign.Sizes{CI: 1, Nightly: 10, Release: 30}, func(t *testing.T, r *campaign.Round) {
		h := newTimeline(t, r.Seed, clock.Now(), of)
		began, made := time.Now(), []time.Duration(nil)
		for _, skew := range []time.Duration{-distance(r.Rand, month), distance(r.Rand, month)} {
			standby, its := primary.StandbyWithClock(primary.Port(), clock.Ahead()+skew)
			awaitSync(t, primary)
			stop := h.callers(t.Context(), r.Rand, 16)
			h.untilUsedUp(t)
			h.gate.Lock() // no statement is in flight during the failover
			h.settle(t, primary.DSN())
			primary.Kill()
			front.Point(standby.Port())
			standby.Promote()
			newLoad(t, of).recovers(t, r, time.Now())
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
		h.comeBack(t, r)
	})
}

// untilUsedUp waits until each key that does not come back at once was refused: an additional grant shows.
func (h *timeline) untilUsedUp(t *testing.T) {
	var left int
	if !await(t, waitLimit, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		left = slices.IndexFunc(h.keys, func(k *watched) bool {
			return kinds.Lockout(k.policy) > time.Second && k.segments[len(k.segments)-1].Refused == 0
		})
		return left < 0
	}) {
		t.Fatalf("%s: a key is never used up", h.keys[left].name)
	}
}

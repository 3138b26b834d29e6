package prove_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
)

// dsnAt is that of the superuser at a port of the loopback interface.
func dsnAt(port int) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
}

// until waits for SQL to select true.
func until(t testing.TB, dsn, sql string) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !query[bool](t, dsn, sql); {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come true: %s", sql)
		}
		wait(t.Context(), 10*time.Millisecond)
	}
}

// awaitSync has a server wait for its standby with each commit from now on.
func awaitSync(t *testing.T, primary *cluster.Cluster) {
	t.Helper()
	execute(t, primary.DSN(), "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	until(t, primary.DSN(), "SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'")
}

func TestFailoverToSyncStandby(t *testing.T) {
	primary := cluster.New(t, durable...)
	migrate(t, primary.DSN())
	// One caller has a way of its own, so that its connections can be counted.
	front, side := cutproxy.New(t, primary.Port()), cutproxy.New(t, primary.Port())
	load := newLoad(t, stores(t, 2, dsnAt(front.Port())+"&pool_max_conns=8"))
	one := lastingOf(t, openStore(t, dsnAt(side.Port())+"&pool_max_conns=1"))[0]
	proof.Rounds(t, "failovers to a synchronous standby", campaign.Sizes{CI: 1, Nightly: 20, Release: 60}, func(t *testing.T, r *campaign.Round) {
		standby := primary.Standby(primary.Port())
		awaitSync(t, primary)

		stop := load.begin(t, r, primary.DSN())
		pause(t.Context(), r, 300*time.Millisecond)
		primary.Kill()
		front.Point(standby.Port())
		side.Point(standby.Port())
		// At first whoever comes finds a server that only reads, and comes anew each time.
		const failures = 3
		before := side.Accepted()
		for range failures {
			load.untilReadOnly(t, one)
		}
		if n := side.Accepted() - before; n < failures {
			t.Errorf("a server that only reads was met %d times on %d connections: they are used again", failures, n)
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
	primary := cluster.New(t, durable...)
	migrate(t, primary.DSN())
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
		stop() // what is lost can be had again, and is not to be taken for too much
		replication.Cut()
		standby.Promote()
		front.Point(standby.Port())
		began := time.Now()
		v := load.compare(t, standby.DSN())
		r.Count(campaign.LostAsyncFailover, v.Lost)
		r.Count(campaign.Failovers, 1)
		if v.Lost > 0 {
			t.Logf("failover %d lost %d acknowledged takes, of those after %v behind", r.Number, v.Lost, v.Oldest.Sub(behind).Round(time.Millisecond))
			// What was on its way is for a machine that has other things to do.
			if early := behind.Sub(v.Oldest); early > 200*time.Millisecond {
				t.Errorf("a take was lost that was acknowledged %v before the standby fell behind", early)
			}
		}
		judgeKept(t, r, load.ledger, v)
		load.recovers(t, r, began)

		primary.Discard()
		primary = standby
	})
}

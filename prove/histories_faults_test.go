package prove_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/workload"
)

// What callers were told has to agree with the rows whatever came in between, in any pair.
func TestHistoriesUnderPairsOfFaults(t *testing.T) {
	server := cluster.New(t, systemSettings...)
	log := migrated(t, server)
	a := &system{
		server: server, front: cutproxy.New(t, server.Port()),
		pooler: dbtest.NewPooler(t, server.DSN(), "server_login_retry = 0.1"),
	}
	tolerant := workload.Options{Callers: 48, Timeout: limiter.DefaultTimeout, Tolerant: true}
	proof.Rounds(t, "histories under pairs of faults", campaign.Sizes{CI: 1, Nightly: 50, Release: 200}, func(t *testing.T, r *campaign.Round) {
		workers := []worker{
			{DSN: dsnAt(a.front.Port()) + "&application_name=" + application, Options: tolerant},
			{DSN: a.pooler.DSN(), Pooled: true, Options: tolerant},
		}
		h := openHistory(t, r, log, time.Now(), workers)
		a.awaitPooler(t)
		run := startWorkers(t, workers...)
		a.workers = run.processes
		pairs := 0
		for a.pair(t, r, run.ended, slices.Concat(around, ofClients)) {
			pairs++
		}
		if pairs == 0 {
			t.Error("the history ended before any fault came")
		}
		h.Calls = run.calls(t)
		quiet(t, server.DSN())
		closeHistory(t, r, log, h)
	})
}

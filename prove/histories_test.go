package prove_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/audit"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/history"
	"github.com/sqlimit/limiter/prove/internal/workload"
)

// busy is what a worker does in a round. One behind a pooler has a few callers only: without prepared
// statements each call costs several times as much. Nothing fails here, so that a call may take long.
var (
	busy       = workload.Options{Callers: 256, Timeout: time.Minute}
	busyPooled = workload.Options{Callers: 48, Timeout: time.Minute}
)

type sweeper interface {
	Sweep(ctx context.Context, limit int64) (int64, error)
}

// rest is how long a sweep is followed by none: it reads whole tables.
const rest = 50 * time.Millisecond

// historyRound is a round of the workload beside sweeps, recorded and checked. The store's clock reads now.
func historyRound(t *testing.T, r *campaign.Round, log *audit.Log, now time.Time, s sweeper, workers ...worker) {
	h := openHistory(t, r, log, now, workers)
	var swept int64
	stop := repeat(r.Rand, 1, func(*rand.Rand, int) {
		n, err := s.Sweep(t.Context(), 1_000_000)
		swept += n
		testenv.Equal(t, err, nil, "Sweep")
		wait(t.Context(), rest)
	})
	func() {
		defer stop() // before the round ends
		h.Calls = startWorkers(t, workers...).calls(t, r)
	}()
	r.Count("expired rows swept", swept)
	closeHistory(t, r, log, h)
}

func openHistory(t *testing.T, r *campaign.Round, log *audit.Log, now time.Time, workers []worker) *history.History {
	must(t, log.Clear(t.Context()))
	opened := workload.Expired(r.Number, now)
	must(t, log.Seed(t.Context(), opened))
	for i := range workers {
		workers[i].Seed, workers[i].Round, workers[i].Calls = r.Rand.Uint64(), r.Number, *perCaller
	}
	return &history.History{Opened: opened}
}

func closeHistory(t *testing.T, r *campaign.Round, log *audit.Log, h *history.History) {
	var err error
	h.Transitions, h.Left, err = log.Read(t.Context())
	must(t, err)
	judge(t, r, h)
}

// countedAs has what the report calls operations that were carried out.
var countedAs = map[limiter.OpKind]string{
	limiter.OpCharge: "charges with room", limiter.OpBlock: "blocks", limiter.OpRefund: "refunds",
	limiter.OpCancel: "cancels", limiter.OpReset: "resets",
}

func judge(t *testing.T, r *campaign.Round, h *history.History) {
	witness := history.Check(h)
	testenv.ErrorIs(t, witness.Err(), nil)
	r.Count(campaign.Operations, witness.Operations)
	r.Count("takes granted", witness.Charged)
	for i := range h.Calls {
		switch c := &h.Calls[i]; {
		case c.Op.Kind == limiter.OpTake && c.Op.MaxWait > 0 && c.State.Took:
			r.Count("reservations", 1)
		case c.Op.Kind == limiter.OpTakeUpTo && c.State.Took && c.State.Taken < c.Op.Cost:
			r.Count("takes of a part", 1)
		case c.Op.Kind == limiter.OpCharge && c.Outcome == history.Answered && !c.State.Took:
			r.Count("charges into debt", 1)
		case c.State.Took && countedAs[c.Op.Kind] != "":
			r.Count(countedAs[c.Op.Kind], 1)
		}
	}
	r.Count("statements' changes of rows", int64(len(h.Transitions)))
	r.Count(campaign.Unknown, witness.Unknown)
	r.None(campaign.OverAdmitted, witness.Of(history.Over))
	r.None(campaign.LostTakes, witness.Of(history.Lost))
	r.None(campaign.DoubleCharges, witness.Of(history.Double))
}

// A decision must not depend on the clients' clocks, so they are an hour from that of the server.
func TestHistoriesOnPostgreSQL(t *testing.T) {
	c, clock := cluster.NewWithClock(t)
	migrate(t, c.DSN())
	log := auditOf(t, c)
	pooled := dbtest.PgBouncer(t, c.DSN())
	sweeps := openStore(t, c.DSN())
	proof.Rounds(t, "histories on PostgreSQL", campaign.Sizes{CI: 1, Nightly: 20, Release: 220}, func(t *testing.T, r *campaign.Round) {
		clock.Set([]time.Duration{-time.Hour, time.Hour}[r.Number%2])
		historyRound(t, r, log, clock.Now(), sweeps, worker{DSN: c.DSN(), Options: busy}, worker{DSN: pooled + execMode, Options: busyPooled})
		r.Count("rounds in which the clocks of server and clients are an hour apart", 1)
	})
}

// auditOf returns the log of what happens to the tables of a server.
func auditOf(t *testing.T, c *cluster.Cluster) *audit.Log {
	t.Helper()
	log, err := audit.Postgres(t.Context(), c.DSN())
	must(t, err)
	t.Cleanup(func() { _ = log.Close() })
	return log
}

func TestHistoriesOnSQLite(t *testing.T) {
	path := newFile(t)
	store := openFile(t, path)
	defer store.Close()
	log, err := audit.SQLite(t.Context(), path)
	must(t, err)
	defer log.Close()
	proof.Rounds(t, "histories on SQLite", campaign.Sizes{CI: 1, Nightly: 20, Release: 130}, func(t *testing.T, r *campaign.Round) {
		historyRound(t, r, log, time.Now(), store, worker{Path: path, Options: busy}, worker{Path: path, Options: busy})
	})
}

// What callers were told has to agree with the rows whatever came in between, in any pair.
func TestHistoriesUnderPairsOfFaults(t *testing.T) {
	server := newServer(t, loginLimit)
	log := auditOf(t, server)
	a := &system{server: server, front: cutproxy.New(t, server.Port()), pooler: dbtest.NewPooler(t, server.DSN(), "server_login_retry = 0.1")}
	tolerant := workload.Options{Callers: 48, Timeout: limiter.DefaultTimeout, Tolerant: true}
	proof.Rounds(t, "histories under pairs of faults", campaign.Sizes{CI: 1, Nightly: 50, Release: 200}, func(t *testing.T, r *campaign.Round) {
		workers := []worker{
			{DSN: dsnAt(a.front.Port()) + "&application_name=" + application, Options: tolerant},
			{DSN: behind(a.pooler), Options: tolerant},
		}
		h := openHistory(t, r, log, time.Now(), workers)
		r.Count("restarts of PgBouncer between rounds", a.pooler.Await())
		run := startWorkers(t, workers...)
		a.workers = run.processes
		a.turn = r.Rand.IntN(100)
		pairs := 0
		for a.pair(t, r, run.ended, slices.Concat(around, ofClients)) {
			pairs++
		}
		testenv.Equal(t, pairs > 0, true, "a pair of faults came before the history ended")
		h.Calls = run.calls(t, r)
		quiet(t, server.DSN())
		closeHistory(t, r, log, h)
	})
}

package prove_test

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
)

const (
	// walWriterDelay is PostgreSQL's default: an asynchronous commit is begun to be
	// written after at most three of them (manual, 30.4).
	walWriterDelay = 200 * time.Millisecond
	// walFlush is for the writing itself, and for a machine that has other things to do.
	walFlush = 400 * time.Millisecond
)

func TestServerKillsWithAsyncCommit(t *testing.T) {
	server := cluster.New(t, append(durable, "wal_writer_delay=200ms")...)
	migrate(t, server.DSN())
	load := newLoad(t, stores(t, 2, server.DSN()+"&pool_max_conns=8", postgres.WithAsyncCommit()))
	proof.Rounds(t, "kills of a cluster, WithAsyncCommit", campaign.Sizes{CI: 2, Nightly: 30, Release: 100}, func(t *testing.T, r *campaign.Round) {
		stop := load.begin(t, r, server.DSN())
		// Longer than what may be lost, so that it shows if more is.
		wait(t.Context(), 4*walWriterDelay+time.Duration(r.Rand.Int64N(int64(walWriterDelay))))
		server.Kill()
		killed := time.Now()
		r.Count(campaign.ClusterKills, 1)
		stop() // what is lost can be had again, and is not to be taken for too much
		server.Start()
		began := time.Now()
		v := load.compare(t, server.DSN())
		r.Count(campaign.LostAsyncCommit, v.Lost)
		if v.Lost > 0 {
			age := killed.Sub(v.Oldest)
			r.Count("kills that lost takes with WithAsyncCommit", 1)
			r.Most("age of a take lost with WithAsyncCommit", age)
			t.Logf("kill %d lost %d acknowledged takes, the oldest %v old", r.Number, v.Lost, age.Round(time.Millisecond))
			if most := 3*walWriterDelay + walFlush; age > most {
				t.Errorf("a take was lost %v after it was acknowledged, want at most %v", age, most)
			}
		}
		judgeKept(t, r, load.ledger, v)
		load.recovers(t, r, began)
	})
}

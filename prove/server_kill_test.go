package prove_test

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
)

// durable is what is claimed: a commit is on the disk before anybody is told of it. The
// rest makes restarts quick.
var durable = []string{"fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=32MB", "checkpoint_timeout=30s"}

// epoch is for how many rounds the same keys are used.
const epoch = 20

func TestServerKills(t *testing.T) {
	server := cluster.New(t, durable...)
	migrate(t, server.DSN())
	load := newLoad(t, stores(t, 2, server.DSN()+"&pool_max_conns=8"))
	proof.Rounds(t, "kills of a cluster", campaign.Sizes{CI: 4, Nightly: 100, Release: 300}, func(t *testing.T, r *campaign.Round) {
		stop := load.begin(t, r, server.DSN())
		wait(t.Context(), 20*time.Millisecond+time.Duration(r.Rand.Int64N(int64(280*time.Millisecond))))
		server.Kill()
		r.Count(campaign.ClusterKills, 1)
		wait(t.Context(), time.Duration(r.Rand.Int64N(int64(100*time.Millisecond))))
		server.Start()
		load.recovers(t, r, time.Now())
		stop()
		load.exact(t, r, server.DSN())
	})
}

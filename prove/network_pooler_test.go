package prove_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// behind is a DSN to a pooler, in the mode for poolers.
func behind(p *dbtest.Pooler) string {
	return p.DSN() + "&pool_max_conns=8&default_query_exec_mode=exec"
}

func poolerRows() []networkFault {
	return []networkFault{
		loadRow("pgbouncer killed and started", func(t *testing.T, n *network) loadFault {
			p := dbtest.NewPooler(t, n.server.DSN(), "default_pool_size = 8")
			return loadFault{
				dsn: behind(p), dials: true, count: campaign.PoolerKills, must: []string{outcome.NotApplied},
				begin: func(*testing.T) { p.Kill() },
				end:   func(*testing.T) { p.Start() },
			}
		}),
		loadRow("pgbouncer limits: server_login_retry", func(t *testing.T, n *network) loadFault {
			between := cutproxy.New(t, n.server.Port())
			p := dbtest.NewPooler(t, dsnAt(between.Port()), "default_pool_size = 8", "server_login_retry = 1")
			return loadFault{
				dsn: behind(p), dials: true, must: []string{outcome.Unknown},
				begin: func(*testing.T) { between.Refuse(true); between.Break() },
				end:   func(*testing.T) { between.Refuse(false) },
			}
		}),
		{"pgbouncer limits: max_client_conn", tooManyClients},
		{"pgbouncer limits: query_wait_timeout", noServerInTime},
		{"pgbouncer: server crash behind it", serverCrashBehind},
	}
}

func tooManyClients(t *testing.T, n *network) func(t *testing.T, r *campaign.Round) {
	p := dbtest.NewPooler(t, n.server.DSN(), "max_client_conn = 3")
	return func(t *testing.T, r *campaign.Round) {
		k := newOneKey(t, n, r, behind(p), limiter.DefaultTimeout)
		var others []*pgx.Conn
		for range 3 {
			others = append(others, connection(t, behindPlain(p)))
		}
		// The pooler's answer comes while the connection is made: nothing was sent.
		k.fails(t, r, limiter.DefaultTimeout, nil, outcome.NotApplied)
		for _, other := range others {
			_ = other.Close(t.Context())
		}
		k.works(t, r)
	}
}

// behindPlain is the same for a connection that is none of a pool's.
func behindPlain(p *dbtest.Pooler) string { return p.DSN() + "&default_query_exec_mode=exec" }

// noServerInTime has the only session of the server in use.
func noServerInTime(t *testing.T, n *network) func(t *testing.T, r *campaign.Round) {
	p := dbtest.NewPooler(t, n.server.DSN(), "default_pool_size = 1", "query_wait_timeout = 1")
	return func(t *testing.T, r *campaign.Round) {
		const limit = 4 * time.Second // longer than the pooler waits
		k := newOneKey(t, n, r, behind(p), limit)
		k.works(t, r)
		other := connection(t, behindPlain(p))
		defer other.Close(context.Background())
		tx, err := other.Begin(t.Context())
		must(t, err)
		began := time.Now()
		k.fails(t, r, limit, func() {
			wait(t.Context(), 1500*time.Millisecond)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
		}, outcome.Unknown, outcome.NotApplied)
		if time.Since(began) > limit {
			t.Error("it was not the pooler that ended it")
		}
		k.works(t, r)
	}
}

func serverCrashBehind(t *testing.T, n *network) func(t *testing.T, r *campaign.Round) {
	between := cutproxy.New(t, n.server.Port())
	p := dbtest.NewPooler(t, dsnAt(between.Port()), "server_login_retry = 1")
	return func(t *testing.T, r *campaign.Round) {
		k := newOneKey(t, n, r, behind(p), waitLimit)
		must(t, testenv.ErrorOf(k.Allow(t.Context(), k.key)))
		release := k.hold(t)
		err := k.failure(t, r, waitLimit, func() {
			k.blocked(t, 1)
			between.Break()
			r.Count(campaign.Cuts, 1)
			release()
		}, outcome.Unknown)
		if err != nil && !strings.Contains(err.Error(), "08P01") {
			t.Errorf("the error is %v, want that of the pooler", err)
		}
		k.works(t, r)
	}
}

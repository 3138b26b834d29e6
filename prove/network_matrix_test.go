package prove_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

// networkFault is a row of the fault matrix: something between client and server.
type networkFault struct {
	name string
	// make makes what the row needs, and returns a round of it.
	make func(t *testing.T, server *cluster.Cluster) func(t *testing.T, r *campaign.Round)
}

// loadRow is a row whose fault hits callers of two stores.
func loadRow(name string, of func(t *testing.T, server *cluster.Cluster) loadFault) networkFault {
	return networkFault{name, func(t *testing.T, server *cluster.Cluster) func(t *testing.T, r *campaign.Round) {
		s := of(t, server)
		s.server = server.DSN()
		l := newLoad(t, stores(t, 2, s.dsn+"&pool_max_conns=8"))
		if s.after != nil {
			t.Cleanup(s.after)
		}
		return func(t *testing.T, r *campaign.Round) {
			l.renew(t, s.server) // the row before has left its keys
			s.run(t, r, l)
		}
	}}
}

func TestFaultMatrixNetwork(t *testing.T) {
	// Toxics log each connection that ends. That would hide why a test failed.
	zerolog.SetGlobalLevel(zerolog.Disabled)
	server := newServer(t, "max_connections=800") // a row's dead peers keep their sessions until it ends
	for _, row := range slices.Concat(slowRows(), silentRows(), serverRows(), keyRows()) {
		t.Run(row.name, func(t *testing.T) {
			proof.Rounds(t, "network: "+row.name, campaign.Sizes{CI: 1, Nightly: 10, Release: 15}, row.make(t, server))
		})
	}
}

// slowRows are those of a network that is slow, loses what is sent, or breaks.
func slowRows() []networkFault {
	// Each of toxics is "type stream {attributes}", as of toxiproxy.
	toxic := func(name string, s loadFault, toxics ...string) networkFault {
		return loadRow(name, func(t *testing.T, server *cluster.Cluster) loadFault {
			upstream := fmt.Sprintf("127.0.0.1:%d", server.Port())
			p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "pg", "127.0.0.1:0", upstream)
			must(t, p.Start())
			t.Cleanup(p.Stop)
			s.dsn = strings.Replace(server.DSN(), upstream, p.Listen, 1)
			s.begin = func(t *testing.T) {
				for _, toxic := range toxics {
					word := strings.SplitN(toxic, " ", 3)
					json := fmt.Sprintf(`{"type":%q,"stream":%q,"attributes":%s}`, word[0], word[1], word[2])
					must(t, testenv.ErrorOf(p.Toxics.AddToxicJson(strings.NewReader(json))))
				}
			}
			s.end = func(t *testing.T) { p.Toxics.ResetToxics(t.Context()) }
			return s
		})
	}
	granted, unknown := []string{outcome.Carried}, []string{outcome.Unknown}
	return []networkFault{
		toxic("slow: within the time limit", loadFault{must: granted}, `latency downstream {"latency":40,"jitter":20}`),
		toxic("slow: beyond the time limit", loadFault{must: unknown, dials: true}, `latency downstream {"latency":400,"jitter":100}`),
		toxic("slow: little bandwidth", loadFault{must: unknown, dials: true}, `bandwidth downstream {"rate":1}`, `bandwidth upstream {"rate":1}`),
		toxic("slow: a few bytes at a time", loadFault{must: granted, dials: true}, `slicer downstream {"average_size":3,"delay":50}`, `slicer upstream {"average_size":40,"delay":50}`),
		toxic("hang: no answer comes back", loadFault{must: unknown, dials: true}, `timeout downstream {"timeout":0}`),
		toxic("hang: no request arrives", loadFault{must: unknown, dials: true}, `timeout upstream {"timeout":0}`),
		toxic("reset mid-statement", loadFault{must: unknown, dials: true}, `reset_peer downstream {"timeout":0}`),
		toxic("reset of what was sent", loadFault{must: unknown, dials: true}, `reset_peer upstream {"timeout":1}`),
		toxic("end mid-statement", loadFault{must: unknown, dials: true}, `limit_data downstream {"bytes":700}`),
	}
}

// silentRows are those of a peer that says nothing any more.
func silentRows() []networkFault {
	unknown := []string{outcome.Unknown}
	peer := func(name string, s loadFault, begin, end func(*cutproxy.Proxy)) networkFault {
		return loadRow(name, func(t *testing.T, server *cluster.Cluster) loadFault {
			p := cutproxy.New(t, server.Port())
			s.dsn = dsnAt(p.Port()) + s.dsn
			s.begin, s.end = func(*testing.T) { begin(p) }, func(*testing.T) { end(p) }
			s.after = p.Break // pgx waits 15 s for a silent peer to answer its farewell
			return s
		})
	}
	replace := func(p *cutproxy.Proxy) { p.Strand(); p.Resume() }
	return []networkFault{
		// A function in Lambda has one connection. The peer is gone without a word, and does not answer a farewell.
		peer("dead peer of a pool with one connection", loadFault{dsn: "&pool_max_conns=1", must: unknown, dials: true},
			(*cutproxy.Proxy).Stall, replace),
		peer("dead peer, and another one comes in its place", loadFault{must: unknown, dials: true}, (*cutproxy.Proxy).Stall, replace),
		peer("dead peer that resets what it does not know when it is back", loadFault{must: unknown, dials: true},
			(*cutproxy.Proxy).Stall, (*cutproxy.Proxy).Cut),
		peer("packets that come late, but come", loadFault{must: unknown, dials: true},
			(*cutproxy.Proxy).Stall, (*cutproxy.Proxy).Resume),
		peer("connections that somebody on the way has forgotten", loadFault{must: unknown, dials: true},
			(*cutproxy.Proxy).Strand, func(*cutproxy.Proxy) {}),
		loadRow("slow, hang: sessions of the server stand still", func(_ *testing.T, server *cluster.Cluster) loadFault {
			var pids []int // kept: a session that stands still may hold a lock that each query needs
			signal := func(t *testing.T, s syscall.Signal) {
				for _, pid := range pids {
					if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
						t.Error(err)
					}
				}
			}
			return loadFault{
				dsn: server.DSN() + "&application_name=stopped", must: unknown, dials: true,
				begin: func(t *testing.T) {
					pids = query[[]int](t, server.DSN(), "SELECT array_agg(pid) FROM pg_stat_activity WHERE application_name = 'stopped'")
					signal(t, syscall.SIGSTOP)
				},
				end: func(t *testing.T) { signal(t, syscall.SIGCONT) },
			}
		}),
	}
}

// execMode ends the DSN of a pooler: it asks for the mode for poolers.
const execMode = "&default_query_exec_mode=exec"

func behind(p *dbtest.Pooler) string { return p.DSN() + execMode }

// serverRows are those of a PgBouncer that is killed or has no server, and of a session that locks the tables.
func serverRows() []networkFault {
	return []networkFault{
		loadRow("pgbouncer killed and started", func(t *testing.T, server *cluster.Cluster) loadFault {
			p := dbtest.NewPooler(t, server.DSN(), "default_pool_size = 8")
			return loadFault{
				dsn: behind(p), dials: true, count: campaign.PoolerKills, must: []string{outcome.NotApplied},
				begin: func(*testing.T) { p.Kill() },
				end:   func(*testing.T) { p.Start() },
			}
		}),
		loadRow("pgbouncer limits: server_login_retry", func(t *testing.T, server *cluster.Cluster) loadFault {
			between := cutproxy.New(t, server.Port())
			p := dbtest.NewPooler(t, dsnAt(between.Port()), "default_pool_size = 8", "server_login_retry = 1")
			return loadFault{
				dsn: behind(p), dials: true, must: []string{outcome.Unknown},
				begin: func(*testing.T) { between.Refuse(true); between.Break() },
				end:   func(*testing.T) { between.Refuse(false) },
			}
		}),
		loadRow("lock queue by a stuck transaction: the table", func(_ *testing.T, server *cluster.Cluster) loadFault {
			var release func()
			return loadFault{
				dsn: server.DSN(), must: []string{outcome.Unknown},
				begin: func(t *testing.T) { release = holdBy(t, server.DSN(), "LOCK "+tables.Names) },
				end:   func(*testing.T) { release() },
			}
		}),
	}
}

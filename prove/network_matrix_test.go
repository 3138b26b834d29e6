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

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// network is a server, and what is between it and its clients.
type network struct {
	server *cluster.Cluster
}

// networkFault is a row of the fault matrix: something between client and server.
type networkFault struct {
	name string
	// make makes what the row needs, and returns a round of it.
	make func(t *testing.T, n *network) func(t *testing.T, r *campaign.Round)
}

func loadRow(name string, of func(t *testing.T, n *network) loadFault) networkFault {
	return networkFault{name, func(t *testing.T, n *network) func(t *testing.T, r *campaign.Round) {
		s := of(t, n)
		s.server = n.server.DSN()
		l := newLoad(t, stores(t, 2, s.dsn))
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
	n := &network{server: cluster.New(t, durable...)}
	migrate(t, n.server.DSN())
	for _, row := range slices.Concat(slowRows(), silentRows(), poolerRows(), lockRows()) {
		t.Run(row.name, func(t *testing.T) {
			proof.Rounds(t, "network: "+row.name, campaign.Sizes{CI: 1, Nightly: 10, Release: 15}, row.make(t, n))
		})
	}
}

// slowRows are those of a network that is slow, loses what is sent, or breaks.
func slowRows() []networkFault {
	toxic := func(name string, s loadFault, toxics ...string) networkFault {
		return loadRow(name, func(t *testing.T, n *network) loadFault {
			return newToxics(t, n.server.Port()).loadFault(s, toxics...)
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
		return loadRow(name, func(t *testing.T, n *network) loadFault {
			p := cutproxy.New(t, n.server.Port())
			s.dsn = dsnAt(p.Port()) + "&pool_max_conns=8"
			s.begin, s.end = func(*testing.T) { begin(p) }, func(*testing.T) { end(p) }
			s.after = p.Break // pgx takes 15 s to say farewell to a peer that is silent
			return s
		})
	}
	return []networkFault{
		peer("dead peer, and another one comes in its place", loadFault{must: unknown, dials: true},
			(*cutproxy.Proxy).Stall, func(p *cutproxy.Proxy) { p.Strand(); p.Resume() }),
		peer("dead peer that resets what it does not know when it is back", loadFault{must: unknown, dials: true},
			(*cutproxy.Proxy).Stall, func(p *cutproxy.Proxy) { p.Break(); p.Resume() }),
		peer("packets that come late, but come", loadFault{must: unknown, dials: true},
			(*cutproxy.Proxy).Stall, (*cutproxy.Proxy).Resume),
		peer("connections that somebody on the way has forgotten", loadFault{must: unknown, dials: true},
			(*cutproxy.Proxy).Strand, func(*cutproxy.Proxy) {}),
		{"dead peer of a pool with one connection", deadPeerOfOne},
		loadRow("slow, hang: sessions of the server stand still", func(_ *testing.T, n *network) loadFault {
			var pids []int // kept: a session that stands still may hold a lock that each query needs
			signal := func(t *testing.T, s syscall.Signal) {
				for _, pid := range pids {
					if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
						t.Error(err)
					}
				}
			}
			return loadFault{
				dsn: n.server.DSN() + "&pool_max_conns=8&application_name=stopped", must: unknown, dials: true,
				begin: func(t *testing.T) {
					pids = query[[]int](t, n.server.DSN(), "SELECT array_agg(pid) FROM pg_stat_activity WHERE application_name = 'stopped'")
					signal(t, syscall.SIGSTOP)
				},
				end: func(t *testing.T) { signal(t, syscall.SIGCONT) },
			}
		}),
	}
}

// deadPeerOfOne is what a function meets in Lambda: it has one connection, whose peer
// has gone without a word, and cannot be told that either.
func deadPeerOfOne(t *testing.T, n *network) func(t *testing.T, r *campaign.Round) {
	p := cutproxy.New(t, n.server.Port())
	dsn := dsnAt(p.Port()) + "&pool_max_conns=1"
	return func(t *testing.T, r *campaign.Round) {
		k := newOneKey(t, n, r, dsn, limiter.DefaultTimeout)
		t.Cleanup(p.Break)
		k.works(t, r)
		p.Stall()
		k.fails(t, r, limiter.DefaultTimeout, nil, outcome.Unknown)
		p.Strand()
		p.Resume()
		k.works(t, r)
	}
}

// toxics is a toxiproxy in front of a server of this host.
type toxics struct{ *toxiproxy.Proxy }

func newToxics(t *testing.T, port int) *toxics {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &toxics{toxiproxy.NewProxy(server, "pg", "127.0.0.1:0", fmt.Sprintf("127.0.0.1:%d", port))}
	must(t, p.Start())
	t.Cleanup(p.Stop)
	return p
}

func (p *toxics) dsn() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&pool_max_conns=8", p.Listen)
}

// loadFault is one of toxics, each "type stream {attributes}".
func (p *toxics) loadFault(s loadFault, toxics ...string) loadFault {
	s.dsn = p.dsn()
	s.begin = func(t *testing.T) {
		for _, toxic := range toxics {
			var kind, stream string
			word, attributes, _ := strings.Cut(toxic, "{")
			must(t, testenv.ErrorOf(fmt.Sscan(word, &kind, &stream)))
			must(t, testenv.ErrorOf(p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"type":%q,"stream":%q,"attributes":{%s}`, kind, stream, attributes+"}")))))
		}
	}
	s.end = func(t *testing.T) { p.Toxics.ResetToxics(t.Context()) }
	return s
}

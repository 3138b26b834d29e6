package prove_test

import (
	"fmt"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// toxics is a toxiproxy in front of a server of this host.
type toxics struct{ *toxiproxy.Proxy }

func newToxics(t *testing.T, port int) *toxics {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &toxics{toxiproxy.NewProxy(server, "pg", "127.0.0.1:0", fmt.Sprintf("127.0.0.1:%d", port))}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
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
			if _, err := fmt.Sscan(word, &kind, &stream); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"type":%q,"stream":%q,"attributes":{%s}`, kind, stream, attributes+"}"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.end = func(t *testing.T) { p.Toxics.ResetToxics(t.Context()) }
	return s
}

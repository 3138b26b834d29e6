package prove_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/cuts"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

// cutsOfSample is how many of the bytes of an operation are tried where not all are.
const cutsOfSample = 6

func TestConnectionsAreCutAtEveryByte(t *testing.T) {
	c := cluster.New(t, "fsync=off", "autovacuum=off") // what a cut does is no matter of disks
	migrate(t, c.DSN())
	execute(t, c.DSN(), cuts.Conflict)
	for _, mode := range cuts.Modes() {
		t.Run(mode.Name, func(t *testing.T) {
			proof.Rounds(t, "connections cut at every byte, "+mode.Name, campaign.Sizes{CI: 1, Nightly: 1, Release: 2}, func(t *testing.T, r *campaign.Round) {
				execute(t, c.DSN(), "TRUNCATE "+tables.Names)
				sweep := &cutSweep{dsn: c.DSN(), mode: mode, offset: int64(r.Rand.Uint32()), r: r}
				var clients errgroup.Group
				clients.SetLimit(2 * runtime.NumCPU()) // each waits for connections most of the time
				for _, kind := range cuts.Kinds() {
					clients.Go(func() error {
						testenv.Equal(t, sweep.cut(t, kind), nil, kind.Name)
						return nil
					})
				}
				_ = clients.Wait()
			})
		})
	}
}

// cutSweep is what a round of cuts does, and finds.
type cutSweep struct {
	dsn    string
	mode   cuts.Mode
	offset int64
	mu     sync.Mutex
	r      *campaign.Round
}

// cut cuts an operation at every byte of what is sent and of what is answered.
func (s *cutSweep) cut(t *testing.T, kind cuts.Kind) error {
	client, err := cuts.NewClient(t, s.dsn, s.mode, kind)
	if err != nil {
		return err
	}
	defer client.Close()
	sizes, err := client.Measure()
	if err != nil {
		return fmt.Errorf("without a cut: %w", err)
	}
	total := sizes[cutproxy.Request] + sizes[cutproxy.Response] + 2
	stride := int64(1)
	if proof.Tier == campaign.CI {
		stride = max(1, total/cutsOfSample)
	}
	for point := s.offset % stride; point < total && !t.Failed(); point += stride {
		cut := cutproxy.Cut{After: point, Reset: (point/stride+int64(s.r.Number))%2 == 1} // the second round swaps them
		if point > sizes[cutproxy.Request] {
			cut.Direction, cut.After = cutproxy.Response, point-sizes[cutproxy.Request]-1
		}
		found, err := client.Cut(cut)
		s.note(found)
		if err != nil {
			return fmt.Errorf("cut after %d of %d bytes of the %v, RST %t: %w", cut.After, sizes[cut.Direction], cut.Direction, cut.Reset, err)
		}
	}
	return nil
}

func (s *cutSweep) note(found cuts.Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.Count(campaign.Cuts, 1)
	for class, n := range found.Classes {
		s.r.Count("after a cut: "+class, n)
		s.r.Count(campaign.Operations, n)
	}
	s.r.Count(campaign.Unknown, found.Classes[outcome.Unknown])
	s.r.Most("answer after a cut, ms", found.Took)
	s.r.None(campaign.DoubleCharges, found.Surplus)
	s.r.None(campaign.LostTakes, found.Lost)
}

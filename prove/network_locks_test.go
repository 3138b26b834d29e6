package prove_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

// lockRows are those of callers who wait for somebody else, or do not wait.
func lockRows() []networkFault {
	return []networkFault{
		loadRow("lock queue by a stuck transaction: the table", func(_ *testing.T, n *network) loadFault {
			var release func()
			return loadFault{
				dsn: n.server.DSN() + "&pool_max_conns=8", must: []string{outcome.Unknown},
				begin: func(t *testing.T) {
					release = holdBy(t, n.server.DSN(), "LOCK "+tables.Names)
				},
				end: func(*testing.T) { release() },
			}
		}),
		{"ctx cancel mid-flight", canceledMidFlight},
	}
}

func canceledMidFlight(_ *testing.T, n *network) func(t *testing.T, r *campaign.Round) {
	const (
		keys = 20
		// lingering is for how long a statement may go on, and its caller wait for it,
		// when he has left.
		lingering = 100 * time.Millisecond
	)
	return func(t *testing.T, r *campaign.Round) {
		k := newOneKey(t, n, r, n.server.DSN()+"&pool_max_conns=8", limiter.DefaultTimeout)
		var mu sync.Mutex
		told := map[string]map[string]int64{}
		for i := range keys {
			told[fmt.Sprint(k.key, "/", i)] = map[string]int64{}
		}
		var longest time.Duration
		late := newTimerDelay()
		var callers sync.WaitGroup
		for i := range 16 {
			own := rand.New(rand.NewPCG(r.Seed, uint64(i)))
			callers.Go(func() {
				for range 100 {
					key := fmt.Sprint(k.key, "/", own.IntN(keys))
					ctx, cancel := context.WithCancel(t.Context())
					after := time.Duration(own.Int64N(int64(3 * time.Millisecond)))
					began := time.Now()
					timer := time.AfterFunc(after, cancel)
					res, err := k.Allow(ctx, key)
					took := time.Since(began)
					timer.Stop()
					cancel()
					mu.Lock()
					told[key][outcome.Of(res.Allowed, err)]++
					longest = max(longest, took-after)
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		k.works(t, r)
		lag := late.stop()
		r.Most("answer after the caller has left", longest)
		if longest > lingering+lateness()+lag {
			t.Errorf("a caller who left was answered %v later, where timers ring %v late", longest, lag)
		}
		quiet(t, k.dsn)
		conn := connection(t, n.server.DSN())
		defer conn.Close(context.Background())
		stored, err := tables.Spent(t.Context(), conn, k.Name())
		must(t, err)
		for key, classes := range told {
			certain, possible := outcome.Bounds(classes)
			r.Count(campaign.Unknown, possible)
			r.None(campaign.LostTakes, max(0, certain-stored[key]))
			r.None(campaign.DoubleCharges, max(0, stored[key]-certain-possible))
			for class, count := range classes {
				r.Count("after a caller left: "+class, count)
				r.Count(campaign.Operations, count)
				if class != outcome.Carried && class != outcome.Canceled && class != outcome.CanceledLate {
					t.Errorf("%d answers are %s", count, class)
				}
			}
		}
	}
}

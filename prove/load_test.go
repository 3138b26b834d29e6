package prove_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/ledger"
)

// lasting are policies under which nothing comes back while a test runs: of each kind
// one that is never used up, so that all that is lost shows, and one that soon is, so
// that each one too many shows.
var lasting = []struct {
	name   string
	policy limiter.Policy
}{
	{"roomy-bucket", limiter.TokenBucket{Capacity: 1 << 20, Refill: 1, Interval: 15 * time.Minute}},
	{"tight-bucket", limiter.TokenBucket{Capacity: 300, Refill: 1, Interval: 800 * time.Hour}},
	{"roomy-window", limiter.FixedWindow{Limit: 1 << 40, Window: 262_980 * time.Hour}},
	{"tight-window", limiter.FixedWindow{Limit: 300, Window: 262_980 * time.Hour}},
}

func capacityOf(p limiter.Policy) int64 {
	if w, ok := p.(limiter.FixedWindow); ok {
		return w.Limit
	}
	return p.(limiter.TokenBucket).Capacity
}

// load is callers who take from the same keys by several stores, as several processes
// do, and note what they are told.
type load struct {
	ledger   *ledger.Ledger
	limiters [][]*limiter.Limiter // of each store
	epoch    int                  // keys of another epoch are other keys
}

func newLoad(t *testing.T, stores []limiter.Store, opts ...limiter.Option) *load {
	t.Helper()
	l := &load{ledger: ledger.New()}
	for _, store := range stores {
		l.limiters = append(l.limiters, lastingOf(t, store, opts...))
	}
	return l
}

// lastingOf returns a limiter of each of the lasting policies.
func lastingOf(t *testing.T, store limiter.Store, opts ...limiter.Option) (of []*limiter.Limiter) {
	t.Helper()
	for _, kind := range lasting {
		made, err := limiter.New(store, kind.name, kind.policy, opts...)
		if err != nil {
			t.Fatal(err)
		}
		of = append(of, made)
	}
	return of
}

// take asks a limiter for cost of a key, and notes the answer.
func (l *load) take(ctx context.Context, lim *limiter.Limiter, key string, cost int64) (class string, err error) {
	r, err := lim.AllowN(ctx, key, cost)
	return l.note(lim, key, cost, r, err), err
}

// note enters an answer.
func (l *load) note(lim *limiter.Limiter, key string, cost int64, r limiter.Result, err error) (class string) {
	_, window := lim.Policy().(limiter.FixedWindow)
	id := ledger.ID{Window: window, Limiter: lim.Name(), Key: key}
	return l.ledger.Note(id, capacityOf(lim.Policy()), cost, r, err)
}

// start has so many callers take until stop is called, which waits for them.
func (l *load) start(ctx context.Context, r *rand.Rand, callers int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	ended := make(chan struct{})
	for i := range callers {
		own := rand.New(rand.NewPCG(r.Uint64(), uint64(i)))
		wait.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				l.step(ctx, own, i)
			}
		})
	}
	return func() {
		close(ended)
		wait.Wait() // nobody is cut off: what he is told counts
		cancel()
	}
}

// step is one take by a caller: of the hot key, a warm one, or one that is cold.
func (l *load) step(ctx context.Context, r *rand.Rand, caller int) {
	of := l.limiters[caller%len(l.limiters)]
	lim := of[r.IntN(len(of))]
	key := fmt.Sprintf("%d/cold/%d", l.epoch, r.IntN(1000))
	switch p := r.IntN(10); {
	case p < 3:
		key = fmt.Sprintf("%d/hot", l.epoch)
	case p < 7:
		key = fmt.Sprintf("%d/warm/%d", l.epoch, r.IntN(16))
	}
	if _, err := l.take(ctx, lim, key, 1+r.Int64N(3)); err != nil {
		// A server that is down is not asked as fast as a processor can: it is to come up.
		wait(ctx, time.Duration(10+r.IntN(20))*time.Millisecond)
	}
}

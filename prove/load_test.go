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
	"github.com/sqlimit/limiter/prove/internal/kinds"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// load is callers of the same keys on several stores, as in several processes. It records their answers.
type load struct {
	ledger   *ledger.Ledger
	limiters [][]*limiter.Limiter // of each store
	epoch    int                  // part of every key
	singles  bool                 // no decision is over several limits
}

func newLoad(t *testing.T, stores []limiter.Store, opts ...limiter.Option) *load {
	t.Helper()
	l := &load{ledger: ledger.New()}
	for _, store := range stores {
		l.limiters = append(l.limiters, lastingOf(t, store, opts...))
	}
	return l
}

func lastingOf(t testing.TB, store limiter.Store, opts ...limiter.Option) []*limiter.Limiter {
	t.Helper()
	all, err := newLasting(store, opts...)
	must(t, err)
	return all
}

func newLasting(store limiter.Store, opts ...limiter.Option) (all []*limiter.Limiter, err error) {
	for _, kind := range kinds.Lasting {
		l, err := limiter.New(store, kind.Name, kind.Policy, opts...)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

func (l *load) take(ctx context.Context, lim *limiter.Limiter, key string, cost int64) (class string, err error) {
	r, err := lim.AllowN(ctx, key, cost)
	class = outcome.Of(r.Allowed, err)
	l.note(lim, key, cost, class, err)
	return class, err
}

func (l *load) note(lim *limiter.Limiter, key string, cost int64, class string, err error) {
	l.ledger.Note(class, err, takeOf(kinds.Named{Name: lim.Name(), Policy: lim.Policy()}, key, cost))
}

// noteLeaver is note of the answer to a caller that may have left, to which ErrCanceled is no wrong error.
func (l *load) noteLeaver(lim *limiter.Limiter, key string, cost int64, class string, err error) {
	switch class {
	case outcome.Canceled:
		class = outcome.NotApplied
	case outcome.CanceledLate:
		class = outcome.Unknown
	}
	l.note(lim, key, cost, class, err)
}

// ask makes a request with the limiters of a store, and records the answer.
func (l *load) ask(ctx context.Context, of []*limiter.Limiter, q request) error {
	for i := range q {
		q[i].key = fmt.Sprintf("%d/%s", l.epoch, q[i].key)
	}
	r, err := q.ask(ctx, of)
	l.ledger.Note(outcome.Of(r.Allowed, err), err, q.takes()...)
	return err
}

// begin starts 64 callers of a round, on new keys after each epoch.
func (l *load) begin(t *testing.T, r *campaign.Round, dsn string) (stop func()) {
	t.Helper()
	if r.Number%epoch == 0 {
		l.renew(t, dsn)
	}
	return l.start(t.Context(), r.Rand, 64)
}

// start lets callers take until stop is called.
func (l *load) start(ctx context.Context, r *rand.Rand, callers int) (stop func()) {
	return repeat(r, callers, func(r *rand.Rand, caller int) { l.step(ctx, r, caller) })
}

// repeat calls step again and again in n goroutines, until stop is called and has waited for them.
func repeat(r *rand.Rand, n int, step func(r *rand.Rand, caller int)) (stop func()) {
	ended := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		own := rand.New(rand.NewPCG(r.Uint64(), uint64(i)))
		all.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				step(own, i)
			}
		})
	}
	return func() {
		close(ended)
		all.Wait()
	}
}

func (l *load) step(ctx context.Context, r *rand.Rand, caller int) {
	q := draw(r)
	if l.singles {
		q = q[len(q)-1:] // its first key would be one for this request only
	}
	if err := l.ask(ctx, l.limiters[caller%len(l.limiters)], q); err != nil {
		// Callers of a server that is down pause, so that it can start.
		wait(ctx, time.Duration(10+r.IntN(20))*time.Millisecond)
	}
}

// request is what a caller is about to ask for: a take, or a decision over several limits. No other
// request has the first key of several, so that its row tells whether the decision was charged.
type request []want

type want struct {
	kind int // of kinds.Lasting
	key  string
	cost int64
}

const (
	severalOf    = 4 // of how many requests one is over several limits
	sharedLimits = 4 // how many limits such a request has at most, beside its own
)

func draw(r *rand.Rand) request {
	q := request{drawWant(r)}
	if r.IntN(severalOf) > 0 {
		return q
	}
	q[0].key = fmt.Sprintf("own %016x", r.Uint64())
	for range 1 + r.IntN(sharedLimits) {
		q = append(q, drawWant(r))
	}
	return q
}

// drawWant returns some of the hot key, a warm one, or one that is cold.
func drawWant(r *rand.Rand) want {
	w := want{kind: r.IntN(len(kinds.Lasting)), key: "hot", cost: 1 + r.Int64N(3)}
	switch p := r.IntN(10); {
	case p < 3:
		w.key = fmt.Sprint("cold ", r.IntN(1000))
	case p < 7:
		w.key = fmt.Sprint("warm ", r.IntN(16))
	}
	return w
}

func (q request) ask(ctx context.Context, of []*limiter.Limiter) (limiter.Result, error) {
	if len(q) == 1 {
		return of[q[0].kind].AllowN(ctx, q[0].key, q[0].cost)
	}
	var claims []limiter.Claim
	for _, w := range q {
		claims = append(claims, limiter.Claim{Limiter: of[w.kind], Key: w.key, Cost: w.cost})
	}
	r, err := limiter.AllowAll(ctx, claims...)
	return r.Result, err
}

func (q request) takes() (takes []ledger.Take) {
	for _, w := range q {
		takes = append(takes, takeOf(kinds.Lasting[w.kind], w.key, w.cost))
	}
	return takes
}

func takeOf(of kinds.Named, key string, cost int64) ledger.Take {
	id := ledger.ID{Kind: limiter.KindOf(of.Policy), Limiter: of.Name, Key: key}
	return ledger.Take{ID: id, Capacity: kinds.Limit(of.Policy), Cost: cost}
}

package borrow

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

const ttl = time.Second

// hourly is a bucket of which nothing comes back while a test runs.
var hourly = limiter.TokenBucket{Capacity: 1000, Refill: 1, Interval: time.Hour}

// inner is a store in memory that records what it gets. If before or after is set, its error is that of the
// operation, before or after that was carried out.
type inner struct {
	*memory.Store
	before, after func(op limiter.Op) error

	mu  sync.Mutex
	ops []limiter.Op
}

func (s *inner) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	s.mu.Lock()
	s.ops = append(s.ops, op)
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(op); err != nil {
			return limiter.State{}, err
		}
	}
	state, err := s.Store.Do(ctx, op)
	if err == nil && after != nil {
		err = after(op)
	}
	return state, err
}

// bed is what a test works with, in a synctest bubble: a Store, and a limiter on it.
type bed struct {
	*testing.T
	inner *inner
	store *Store
	l     *limiter.Limiter
	apart atomic.Int64 // how far the wall clock has moved from the monotonic one
}

func in(t *testing.T, name string, n int64, test func(b *bed)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &bed{T: t, inner: &inner{Store: memory.New()}}
			b.store = b.open(n)
			clocks := b.store.clocks
			b.store.clocks = func() instant {
				now := clocks()
				return instant{now.wall + b.apart.Load(), now.mono}
			}
			b.l = b.limiter(b.store, hourly)
			test(b)
		})
	})
}

func (b *bed) open(n int64) *Store {
	b.Helper()
	s, err := New(b.inner, n, ttl)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *bed) limiter(s limiter.Store, p limiter.TokenBucket, opts ...limiter.Option) *limiter.Limiter {
	b.Helper()
	l, err := limiter.New(s, "test", p, opts...)
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// allow takes cost from the key "k".
func (b *bed) allow(cost int64, want bool) limiter.Result {
	b.Helper()
	res, err := b.l.AllowN(b.Context(), "k", cost)
	if err != nil || res.Allowed != want {
		b.Fatalf("AllowN(%d) = %+v, %v; want %v", cost, res, err, want)
	}
	return res
}

// hold makes the Store hold exactly 3 tokens: three takes go to the store, and the fourth borrows 4.
func (b *bed) hold() {
	b.Helper()
	for range busy {
		b.allow(1, true)
	}
	if got := b.holds(); got != 3 {
		b.Fatalf("%d tokens are held, want 3", got)
	}
	b.sent()
}

// holds returns how many tokens of all keys are held.
func (b *bed) holds() (tokens int64) {
	for i := range b.store.shards {
		b.store.shards[i].mu.Lock()
		for _, e := range b.store.shards[i].entries {
			tokens += e.tokens
		}
		b.store.shards[i].mu.Unlock()
	}
	return tokens
}

// used returns how many tokens the inner store has charged, from its own view.
func (b *bed) used() int64 {
	b.Helper()
	res, err := b.limiter(b.inner.Store, hourly).Peek(b.Context(), "k")
	if err != nil {
		b.Fatal(err)
	}
	return hourly.Capacity - res.Remaining
}

// sent returns what the inner store got since the last call.
func (b *bed) sent() []limiter.Op {
	b.inner.mu.Lock()
	defer b.inner.mu.Unlock()
	ops := b.inner.ops
	b.inner.ops = nil
	return ops
}

// sends checks the kinds and costs of what the inner store got since the last call.
func (b *bed) sends(want ...limiter.Op) {
	b.Helper()
	got := b.sent()
	ok := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		ok = ok && got[i].Kind == want[i].Kind && got[i].Cost == want[i].Cost
	}
	if !ok {
		b.Errorf("the inner store got %s; want %s", show(got), show(want))
	}
}

func show(ops []limiter.Op) (text []string) {
	for _, op := range ops {
		text = append(text, op.Kind.String()+" "+time.Duration(op.Cost).String())
	}
	return text
}

func op(kind limiter.OpKind, cost int64) limiter.Op { return limiter.Op{Kind: kind, Cost: cost} }

// answer is what a take returned.
type answer struct {
	limiter.Result
	err error
}

// ask takes cost in a goroutine.
func (b *bed) ask(ctx context.Context, cost int64) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		res, err := b.l.AllowN(ctx, "k", cost)
		c <- answer{res, err}
	}()
	synctest.Wait()
	return c
}

// block makes operations of a kind wait in the inner store until the returned function is called with their
// error.
func (b *bed) block(kind limiter.OpKind) (release func(error)) {
	c := make(chan error)
	b.inner.mu.Lock()
	b.inner.before = func(op limiter.Op) error {
		if op.Kind == kind {
			return <-c
		}
		return nil
	}
	b.inner.mu.Unlock()
	return func(err error) {
		c <- err
		synctest.Wait()
	}
}

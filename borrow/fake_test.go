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

// fixture is what a test works with, in a synctest bubble: a Store, and a limiter on it.
type fixture struct {
	*testing.T
	inner *inner
	store *Store
	l     *limiter.Limiter
	apart atomic.Int64 // how far the wall clock has moved from the monotonic one
}

func run(t *testing.T, name string, n int64, test func(f *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fixture{T: t, inner: &inner{Store: memory.New()}}
			f.store = f.open(n)
			clocks := f.store.clocks
			f.store.clocks = func() instant {
				now := clocks()
				return instant{now.wall + f.apart.Load(), now.mono}
			}
			f.l = f.limiter(f.store, hourly)
			test(f)
		})
	})
}

func (f *fixture) open(n int64) *Store {
	f.Helper()
	s, err := New(f.inner, n, ttl)
	if err != nil {
		f.Fatal(err)
	}
	return s
}

func (f *fixture) limiter(s limiter.Store, p limiter.TokenBucket, opts ...limiter.Option) *limiter.Limiter {
	f.Helper()
	l, err := limiter.New(s, "test", p, opts...)
	if err != nil {
		f.Fatal(err)
	}
	return l
}

// allow takes cost from the key "k".
func (f *fixture) allow(cost int64, want bool) limiter.Result {
	f.Helper()
	res, err := f.l.AllowN(f.Context(), "k", cost)
	if err != nil || res.Allowed != want {
		f.Fatalf("AllowN(%d) = %+v, %v; want %v", cost, res, err, want)
	}
	return res
}

// hold makes the Store hold exactly 3 tokens: three takes go to the store, and the fourth borrows 4.
func (f *fixture) hold() {
	f.Helper()
	for range busy {
		f.allow(1, true)
	}
	if got := f.holds(); got != 3 {
		f.Fatalf("%d tokens are held, want 3", got)
	}
	f.sent()
}

// holds returns how many tokens of all keys are held.
func (f *fixture) holds() (tokens int64) {
	for i := range f.store.shards {
		f.store.shards[i].mu.Lock()
		for _, e := range f.store.shards[i].entries {
			tokens += e.tokens
		}
		f.store.shards[i].mu.Unlock()
	}
	return tokens
}

// used returns how many tokens the inner store has charged, from its own view.
func (f *fixture) used() int64 {
	f.Helper()
	res, err := f.limiter(f.inner.Store, hourly).Peek(f.Context(), "k")
	if err != nil {
		f.Fatal(err)
	}
	return hourly.Capacity - res.Remaining
}

// sent returns what the inner store got since the last call.
func (f *fixture) sent() []limiter.Op {
	f.inner.mu.Lock()
	defer f.inner.mu.Unlock()
	ops := f.inner.ops
	f.inner.ops = nil
	return ops
}

// sends checks the kinds and costs of what the inner store got since the last call.
func (f *fixture) sends(want ...limiter.Op) {
	f.Helper()
	got := f.sent()
	ok := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		ok = ok && got[i].Kind == want[i].Kind && got[i].Cost == want[i].Cost
	}
	if !ok {
		f.Errorf("the inner store got %s; want %s", show(got), show(want))
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
func (f *fixture) ask(ctx context.Context, cost int64) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		res, err := f.l.AllowN(ctx, "k", cost)
		c <- answer{res, err}
	}()
	synctest.Wait()
	return c
}

// block makes operations of a kind wait in the inner store until the returned function is called with their
// error.
func (f *fixture) block(kind limiter.OpKind) (release func(error)) {
	c := make(chan error)
	f.inner.mu.Lock()
	f.inner.before = func(op limiter.Op) error {
		if op.Kind == kind {
			return <-c
		}
		return nil
	}
	f.inner.mu.Unlock()
	return func(err error) {
		c <- err
		synctest.Wait()
	}
}

package borrow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
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
	s.mu.Unlock()
	if s.before != nil {
		if err := s.before(op); err != nil {
			return limiter.State{}, err
		}
	}
	state, err := s.Store.Do(ctx, op)
	if err == nil && s.after != nil {
		err = s.after(op)
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
			f.l = f.limiter(f.store, hourly, limiter.WithTimeout(time.Minute)) // a test ends a statement when it likes
			test(f)
		})
	})
}

func (f *fixture) open(n int64) *Store {
	f.Helper()
	s, err := New(f.inner, n, ttl)
	testenv.Must(f, err)
	return s
}

func (f *fixture) limiter(s limiter.Store, p limiter.TokenBucket, opts ...limiter.Option) *limiter.Limiter {
	f.Helper()
	l, err := limiter.New(s, "test", p, opts...)
	testenv.Must(f, err)
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

// entry returns the entry of the key "k".
func (f *fixture) entry() *entry {
	return f.store.shardOf(&limiter.Op{Name: "test", Key: "k"}).entries[id{"test", "k"}]
}

// used returns how many tokens the inner store has charged, from its own view.
func (f *fixture) used() int64 {
	f.Helper()
	res, err := f.limiter(f.inner.Store, hourly).Peek(f.Context(), "k")
	testenv.Must(f, err)
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
	if got := show(f.sent()); !slices.Equal(got, show(want)) {
		f.Errorf("the inner store got %s; want %s", got, show(want))
	}
}

func show(ops []limiter.Op) (text []string) {
	for _, op := range ops {
		text = append(text, fmt.Sprint(op.Kind, op.Cost))
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

// granted checks that takes are granted.
func (f *fixture) granted(takes ...<-chan answer) {
	f.Helper()
	for _, take := range takes {
		if a := <-take; a.err != nil || !a.Allowed {
			f.Errorf("a take is not granted: %+v", a)
		}
	}
}

// refused checks that takes are refused, with an error that matches all targets. Without one there is no
// error.
func (f *fixture) refused(take <-chan answer, targets ...error) {
	f.Helper()
	a := <-take
	bad := a.Allowed || (a.err != nil) != (len(targets) > 0)
	for _, target := range targets {
		bad = bad || !errors.Is(a.err, target)
	}
	if bad {
		f.Errorf("a take is not refused with %v: %+v", targets, a)
	}
}

// state checks how many tokens are held, and how many the inner store has charged.
func (f *fixture) state(held, charged int64) {
	f.Helper()
	if h, c := f.holds(), f.used(); h != held || c != charged {
		f.Errorf("%d tokens are held and %d charged; want %d and %d", h, c, held, charged)
	}
}

// stats checks how many tokens were given back and lost.
func (f *fixture) stats(givenBack, lost int64) {
	f.Helper()
	if s := f.store.Stats(); s.GivenBack != givenBack || s.Lost != lost {
		f.Errorf("%+v; want %d given back, %d lost", s, givenBack, lost)
	}
}

// fail returns a function for before or after of the inner store that fails operations of a kind.
func fail(kind limiter.OpKind, err error) func(limiter.Op) error {
	return func(op limiter.Op) error {
		if op.Kind == kind {
			return err
		}
		return nil
	}
}

// block makes operations of a kind wait in the inner store until the returned function is called with their
// error.
func (f *fixture) block(kind limiter.OpKind) (release func(error)) {
	c := make(chan error)
	f.inner.before = func(op limiter.Op) error {
		if op.Kind == kind {
			return <-c
		}
		return nil
	}
	return func(err error) {
		c <- err
		synctest.Wait()
	}
}

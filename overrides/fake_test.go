package overrides_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/overrides"
)

// fakeSource is a source that the test controls.
type fakeSource struct {
	mu    sync.Mutex
	list  []limiter.Override
	err   error
	takes time.Duration // how long a read takes, unless its context ends first
	reads int
	limit int // of the latest read
}

func (s *fakeSource) Overrides(ctx context.Context, name string, limit int) ([]limiter.Override, error) {
	s.mu.Lock()
	list, err, takes := s.list, s.err, s.takes
	s.reads++
	s.limit = limit
	s.mu.Unlock()
	if name != "api" {
		return nil, fmt.Errorf("the limiter is %q", name)
	}
	select {
	case <-time.After(takes):
		return list, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// set replaces the overrides: one for key, with this capacity.
func (s *fakeSource) set(key string, capacity int64) {
	s.change(func() { s.list = []limiter.Override{{Key: key, Policy: limiter.PerMinute(capacity)}} })
}

func (s *fakeSource) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *fakeSource) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// clocks are clocks that the test moves.
type clocks struct {
	mu        sync.Mutex
	wall      time.Time
	monotonic time.Duration
}

func newClocks() *clocks { return &clocks{wall: time.Unix(1_800_000_000, 0)} }

func (c *clocks) option() overrides.Option {
	read := func() (time.Time, time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.wall, c.monotonic
	}
	return overrides.WithClocks(
		func() time.Time { wall, _ := read(); return wall },
		func() time.Duration { _, monotonic := read(); return monotonic })
}

func (c *clocks) advance(d time.Duration) { c.move(d, d) }

func (c *clocks) move(wall, monotonic time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.monotonic = c.wall.Add(wall), c.monotonic+monotonic
}

type policyFor = func(context.Context, string) (limiter.Policy, error)

// want fails the test unless the key has an override with this capacity. 0 means none.
func want(t *testing.T, f policyFor, key string, capacity int64) {
	t.Helper()
	got, err := f(t.Context(), key)
	var policy limiter.Policy
	if capacity > 0 {
		policy = limiter.PerMinute(capacity)
	}
	if err != nil || got != policy {
		t.Errorf("the policy of %q is %+v, %v; want %+v", key, got, err, policy)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// withOverrides returns a limiter in memory of 1 a minute.
func withOverrides(t *testing.T, f policyFor, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(memory.New(), "api", limiter.PerMinute(1), append(opts, limiter.WithPolicyFor(f))...)
	must(t, err)
	return l
}

// reported collects what OnError gets.
type reported struct {
	mu   sync.Mutex
	errs []error
}

func (r *reported) option() overrides.Option {
	return overrides.OnError(func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.errs = append(r.errs, err)
	})
}

// panicking is a source with a bug.
type panicking struct{}

func (panicking) Overrides(context.Context, string, int) ([]limiter.Override, error) { panic("bug") }

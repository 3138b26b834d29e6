package handler_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

// sharedStore is a store in memory that can fail.
type sharedStore struct {
	*memory.Store
	takes, looks error // with which operations fail
	reads        int   // looks at one key
}

func newSharedStore() *sharedStore { return &sharedStore{Store: memory.New()} }

func (s *sharedStore) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if op.Kind == limiter.OpLook {
		s.reads++
		if s.looks != nil {
			return limiter.State{}, s.looks
		}
	}
	return s.Store.Do(ctx, op)
}

func (s *sharedStore) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	if s.takes != nil {
		return nil, s.takes
	}
	return s.Store.DoAll(ctx, ops)
}

// newOn returns a limiter on a store and the clock.
func newOn(t testing.TB, store limiter.Store, c *clock, name string, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(store, name, p, append(opts, limiter.WithClock(func() time.Time { return c.now }))...)
	must(t, err)
	return l
}

// burstAndDay returns two rules for everybody: a bucket of 3, and a window of limit.
func burstAndDay(t testing.TB, store limiter.Store, c *clock, limit int64, opts ...limiter.Option) []handler.Rule {
	t.Helper()
	return []handler.Rule{
		{Limiter: newOn(t, store, c, "burst", limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: 2 * time.Second}, opts...), Key: oneKey},
		{Limiter: newOn(t, store, c, "day", limiter.FixedWindow{Limit: limit, Window: 24 * time.Hour}, opts...), Key: oneKey},
	}
}

// costOf returns a cost that the query gives.
func costOf(name string) func(*http.Request) int64 {
	return func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
		return n
	}
}

// left returns what is left of each rule for everybody.
func left(t *testing.T, rules []handler.Rule) (left []int64) {
	t.Helper()
	for _, rule := range rules {
		res, err := rule.Limiter.Peek(t.Context(), "everybody")
		must(t, err)
		left = append(left, res.Remaining)
	}
	return left
}

func violated(problem map[string]any) (names []string) {
	list, _ := problem["violated-policies"].([]any)
	for _, name := range list {
		names = append(names, name.(string))
	}
	return names
}

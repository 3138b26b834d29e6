package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter/memory"
)

// checked is a store that counts the calls of Check.
type checked struct {
	*memory.Store
	calls atomic.Int64
	check func(context.Context) error
}

func (c *checked) Check(ctx context.Context) error {
	c.calls.Add(1)
	return c.check(ctx)
}

func newChecked(check func(context.Context) error) *checked {
	return &checked{Store: memory.New(), check: check}
}

func standing() instant { return instant{} }

func getHealth(ctx context.Context, h http.Handler) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/health", http.NoBody))
	return w.Code
}

func TestHealthChecksOnceASecond(t *testing.T) {
	t.Parallel()
	var failure error
	store := newChecked(func(context.Context) error { return failure })
	now := instant{wall: time.Hour}
	h := health(store, func() instant { return now })
	broken := errors.New("broken")
	for i, s := range []struct {
		name       string
		wall, mono time.Duration // how far each clock moves before the request
		failure    error         // of a check
		checks     int64
		status     int
	}{
		{"the first request checks", 0, 0, nil, 1, 204},
		{"the next request repeats the result", 0, 0, broken, 1, 204},
		{"so does a request within a second", time.Second - 1, time.Second - 1, broken, 1, 204},
		{"after a second it checks again", 1, 1, broken, 2, 503},
		{"it repeats a failure, too", time.Second - 1, time.Second - 1, nil, 2, 503},
		{"but not for longer", 1, 1, nil, 3, 204},
		{"it notices a freeze by the wall clock", time.Hour, 0, broken, 4, 503},
		{"it notices a wall clock that was set back", -time.Minute, 0, nil, 5, 204},
		{"it notices time that a step of the wall clock hides", 0, time.Second, broken, 6, 503},
	} {
		now.wall, now.mono, failure = now.wall+s.wall, now.mono+s.mono, s.failure
		status := getHealth(t.Context(), h)
		if checks := store.calls.Load(); checks != s.checks || status != s.status {
			t.Errorf("step %d, %s: %d checks and %d, want %d and %d", i, s.name, checks, status, s.checks, s.status)
		}
	}
}

func TestHealthRequestsShareOneCheck(t *testing.T) {
	t.Parallel()
	started, finish := make(chan struct{}, 20), make(chan struct{})
	store := newChecked(func(context.Context) error {
		started <- struct{}{}
		<-finish
		return nil
	})
	h := health(store, standing)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if status := getHealth(t.Context(), h); status != http.StatusNoContent {
				t.Errorf("%d, want 204", status)
			}
		})
	}
	<-started
	close(finish)
	group.Wait()
	if got := store.calls.Load(); got != 1 {
		t.Errorf("20 concurrent requests make %d checks, want 1", got)
	}
}

// A check is bounded, and it outlives its client.
func TestHealthContext(t *testing.T) {
	t.Parallel()
	store := newChecked(func(ctx context.Context) error {
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > healthTimeout {
			return errors.New("the check is not bounded")
		}
		return ctx.Err()
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if status := getHealth(gone, health(store, standing)); status != http.StatusNoContent {
		t.Errorf("%d, want 204 from a check that is bounded by %v and not canceled", status, healthTimeout)
	}
}

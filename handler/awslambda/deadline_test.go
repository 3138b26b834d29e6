package awslambda_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// hungStore is a store whose database does not answer, with the time limit that the
// stores on SQL have.
type hungStore struct{}

func (hungStore) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	ctx, stop := new(opcontext.Deadlines).WithTimeout(ctx, op.Timeout)
	defer stop()
	<-ctx.Done()
	if err := opcontext.EndedByCaller(ctx); err != nil {
		return limiter.State{}, fmt.Errorf("%w: %w", limiter.ErrCanceled, err)
	}
	return limiter.State{}, fmt.Errorf("%w: %w", limiter.ErrNotApplied, context.Cause(ctx))
}

func TestFailurePolicyBeforeTheEnd(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		left   time.Duration // of the invocation
		within time.Duration
		policy limiter.Option
		status int
	}{
		{"closed, with time", 3 * time.Second, 250 * time.Millisecond, limiter.FailClosed(), http.StatusServiceUnavailable},
		{"closed, with little time", 200 * time.Millisecond, 100 * time.Millisecond, limiter.FailClosed(), http.StatusServiceUnavailable},
		{"closed, at the very end", 10 * time.Millisecond, 5 * time.Millisecond, limiter.FailClosed(), http.StatusServiceUnavailable},
		{"open, with time", 3 * time.Second, 250 * time.Millisecond, limiter.FailOpen(), http.StatusOK},
		{"open, with just enough time", 350 * time.Millisecond, 250 * time.Millisecond, limiter.FailOpen(), http.StatusOK},
		{"open, with less than the time limit", 349 * time.Millisecond, 249 * time.Millisecond, limiter.FailOpen(), http.StatusServiceUnavailable},
	}
	for _, tt := range tests {
		for _, g := range gateways()[:1] {
			for _, way := range []string{"handler", "function"} {
				t.Run(tt.name+"/"+way, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						l, err := limiter.New(hungStore{}, "orders", limiter.PerHour(5), tt.policy)
						if err != nil {
							t.Fatal(err)
						}
						h := limited(&g, l, handler.ClientIP())[way]
						payload := g.payload(t, request(t, "GET", "/", ""))
						start := time.Now()
						ctx, cancel := context.WithDeadline(t.Context(), start.Add(tt.left))
						defer cancel()
						out, err := h.Invoke(ctx, payload)
						if err != nil || ctx.Err() != nil {
							t.Fatalf("%v, and the invocation: %v", err, ctx.Err())
						}
						if took := time.Since(start); took > tt.within {
							t.Errorf("it took %v, want %v at most", took, tt.within)
						}
						a := g.read(t, out)
						if a.status != tt.status {
							t.Errorf("status %d, want %d", a.status, tt.status)
						}
						if retry := a.header.Get("Retry-After"); (retry != "") != (tt.status == http.StatusServiceUnavailable) {
							t.Errorf("Retry-After: %q with status %d", retry, a.status)
						}
					})
				})
			}
		}
	}
}

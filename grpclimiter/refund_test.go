package grpclimiter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/grpclimiter"
	"github.com/sqlimit/limiter/memory"
)

func TestOnlyFailuresAreCharged(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			rules := burstAndDay(t, 5)
			rules[1].Cost = costIs(2)
			_, client := serve(t, grpclimiter.NewAll(rules, grpclimiter.ChargeFailures()))
			want := func(burst, day int64) {
				t.Helper()
				if b, d := left(t, rules[0].Limiter, "everybody"), left(t, rules[1].Limiter, "everybody"); b != burst || d != day {
					t.Errorf("%d and %d left, want %d and %d", b, d, burst, day)
				}
			}
			for range 4 {
				header, err := kind.call(t.Context(), client)
				wantCode(t, err, codes.OK, 0)
				wantHeader(t, header, bothPolicies, `"burst";r=2;t=2, "day";r=3;t=43200`, "")
				want(3, 5)
			}
			for n := range int64(2) { // the service does not have this method
				_, err := client.EmptyCall(t.Context(), &testpb.Empty{})
				wantCode(t, err, codes.Unimplemented, 0)
				want(2-n, 3-2*n)
			}
			_, err := kind.call(t.Context(), client)
			wantCode(t, err, codes.ResourceExhausted, 12*time.Hour)
			want(1, 1)
		})
	}
}

func TestLateRefund(t *testing.T) {
	t.Parallel()
	// The cost is back after 1 ms of the server's time; the clock of the limiter stands still.
	l := newLimiter(t, limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: time.Millisecond})
	s, client := serve(t, grpclimiter.New(l, oneKey, grpclimiter.ChargeFailures()))
	s.takes = 2 * time.Millisecond
	_, err := call(t, client)
	wantCode(t, err, codes.OK, 0)
	if got := left(t, l, "everybody"); got != 4 {
		t.Errorf("%d left, want 4", got)
	}
}

// keeps is a store that gives nothing back.
type keeps struct{ *memory.Store }

func (k keeps) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if op.Kind == limiter.OpRefund {
		return limiter.State{}, errDown
	}
	return k.Store.Do(ctx, op)
}

func TestFailedRefundIsReported(t *testing.T) {
	t.Parallel()
	l := newOn(t, keeps{memory.New()}, newClock(), "api", limiter.PerMinute(5))
	var seen []error
	_, client := serve(t, grpclimiter.New(l, oneKey, grpclimiter.ChargeFailures(),
		grpclimiter.OnError(func(_ context.Context, _ grpclimiter.Call, err error) { seen = append(seen, err) })))
	_, err := call(t, client)
	wantCode(t, err, codes.OK, 0)
	if len(seen) != 1 || !errors.Is(seen[0], errDown) {
		t.Errorf("OnError got %v, want %v", seen, errDown)
	}
}

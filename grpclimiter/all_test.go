package grpclimiter_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/grpclimiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

// burstAndDay returns two rules for everybody: a bucket of 3, and a window of limit.
func burstAndDay(t testing.TB, limit int64) []grpclimiter.Rule {
	t.Helper()
	store, c := memory.New(), newClock()
	return []grpclimiter.Rule{
		{Limiter: newOn(t, store, c, "burst", limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: 2 * time.Second}), Key: oneKey},
		{Limiter: newOn(t, store, c, "day", limiter.FixedWindow{Limit: limit, Window: 24 * time.Hour}), Key: oneKey},
	}
}

// costIs returns a cost that does not depend on the call.
func costIs(n int64) func(context.Context, grpclimiter.Call) int64 {
	return func(context.Context, grpclimiter.Call) int64 { return n }
}

const bothPolicies = `"burst";q=3;w=6, "day";q=5;w=86400`

func TestRefusalNames(t *testing.T) {
	t.Parallel()
	free := func(rules []grpclimiter.Rule) { rules[0].Cost = costIs(0) }
	for _, tt := range []struct {
		name    string
		change  func([]grpclimiter.Rule)
		retry   time.Duration
		message string
		quota   string
	}{
		{"every limit without room", func([]grpclimiter.Rule) {}, 12 * time.Hour, "rate limit exceeded: burst, day", `"burst";r=0;t=12, "day";r=0;t=43200`},
		{"no limit that was not asked", free, 10 * time.Second, "rate limit exceeded: burst", `"burst";r=0;t=10`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rules := burstAndDay(t, 5)
			must(t, rules[0].Limiter.Block(t.Context(), "everybody", 10*time.Second))
			must(t, testenv.ErrorOf(rules[1].Limiter.AllowN(t.Context(), "everybody", 5)))
			tt.change(rules)
			_, client := serve(t, grpclimiter.NewAll(rules))
			header, err := call(t, client)
			wantCode(t, err, codes.ResourceExhausted, tt.retry)
			wantHeader(t, header, bothPolicies, tt.quota, strconv.Itoa(int(tt.retry.Seconds())))
			if got := status.Convert(err).Message(); got != tt.message {
				t.Errorf("message %q, want %q", got, tt.message)
			}
		})
	}
}

package grpclimiter_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/grpclimiter"
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
			if err := rules[0].Limiter.Block(t.Context(), "everybody", 10*time.Second); err != nil {
				t.Fatal(err)
			}
			if _, err := rules[1].Limiter.AllowN(t.Context(), "everybody", 5); err != nil {
				t.Fatal(err)
			}
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

func TestRulesOfCostZeroTakeNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		burst, day int64
		quota      string
		left       []int64
	}{
		{"OfOneLimit", 0, 2, `"burst";r=3, "day";r=3;t=43200`, []int64{3, 3}},
		{"OfTheOtherLimit", 1, 0, `"burst";r=2;t=2, "day";r=5`, []int64{2, 5}},
		{"OfAllLimits", 0, 0, `"burst";r=3, "day";r=5`, []int64{3, 5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rules := burstAndDay(t, 5)
			rules[0].Cost, rules[1].Cost = costIs(tt.burst), costIs(tt.day)
			s, client := serve(t, grpclimiter.NewAll(rules))
			header, err := call(t, client)
			wantCode(t, err, codes.OK, 0)
			wantHeader(t, header, bothPolicies, tt.quota, "")
			if got := []int64{left(t, rules[0].Limiter, "everybody"), left(t, rules[1].Limiter, "everybody")}; !slices.Equal(got, tt.left) {
				t.Errorf("left %d, want %d", got, tt.left)
			}
			if res, ok := grpclimiter.ResultFromContext(s.last); !ok || !res.Allowed {
				t.Errorf("ResultFromContext = %+v, %t", res, ok)
			}
		})
	}
}

func TestMissingKeyChargesNoLimit(t *testing.T) {
	t.Parallel()
	rules := burstAndDay(t, 5)
	rules[1].Key = grpclimiter.Metadata("x-api-key")
	_, client := serve(t, grpclimiter.NewAll(rules))
	_, err := call(t, client)
	wantCode(t, err, codes.InvalidArgument, 0)
	if got := left(t, rules[0].Limiter, "everybody"); got != 3 {
		t.Errorf("the call left %d of the burst, want 3", got)
	}
	_, err = call(t, client, "x-api-key", "k1")
	wantCode(t, err, codes.OK, 0)
	if got := left(t, rules[1].Limiter, "k1"); got != 4 {
		t.Errorf("the call left %d of the day, want 4", got)
	}
}

func TestPolicyThatDecided(t *testing.T) {
	t.Parallel()
	plan := limiter.WithPolicyFor(func(_ context.Context, key string) (limiter.Policy, error) {
		if key == "gold" {
			return limiter.PerMinute(60), nil
		}
		return nil, nil
	})
	l := newOn(t, memory.New(), newClock(), "api", limiter.PerMinute(1), plan)
	_, client := serve(t, grpclimiter.New(l, grpclimiter.Metadata("x-plan")))
	for plan, want := range map[string]string{"gold": `"api";q=60;w=60`, "free": `"api";q=1;w=60`} {
		header, err := call(t, client, "x-plan", plan)
		wantCode(t, err, codes.OK, 0)
		if got := header.Get("ratelimit-policy"); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: ratelimit-policy %q, want %q", plan, got, want)
		}
	}
}

func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	s, client := serve(t, grpclimiter.NewAll(burstAndDay(t, 2)))
	const callers = 32
	codesOf := make(chan codes.Code, callers)
	for range callers {
		go func() {
			_, err := client.EmptyCall(t.Context(), &testpb.Empty{})
			codesOf <- status.Code(err)
		}()
	}
	counts := map[codes.Code]int{}
	for range callers {
		counts[<-codesOf]++
	}
	// The service has no EmptyCall, which shows that the limiter let a call pass.
	if counts[codes.Unimplemented] != 2 || counts[codes.ResourceExhausted] != callers-2 {
		t.Errorf("codes %v, want 2 that passed and %d refusals", counts, callers-2)
	}
	if n := s.calls.Load(); n != 0 {
		t.Errorf("the service was called %d times by other methods", n)
	}
}

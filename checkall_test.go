package limiter_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func TestCheckAll(t *testing.T) {
	t.Parallel()
	store, fallback := memory.New(), memory.New()
	hour := limiter.PerHour(1)
	plain := named(t, store, "plain", hour)
	local := named(t, store, "local", hour, limiter.FailLocal(fallback))
	planned := named(t, store, "planned", hour, limiter.WithPolicyFor(func(context.Context, string) (limiter.Policy, error) {
		panic("CheckAll chose a policy")
	}))
	daily := func(zone string) limiter.Policy {
		return limiter.CalendarWindow{Limit: 1, Period: limiter.Day, Location: time.FixedZone(zone, 3600)}
	}
	many := slices.Repeat([]*limiter.Limiter{plain}, limiter.MaxClaims+1)
	for _, c := range []struct {
		what     string
		limiters []*limiter.Limiter
		text     string // of the error; empty if there is none
	}{
		{"one", many[:1], ""},
		{"the most", many[1:], ""},
		{"equal names and policies", []*limiter.Limiter{plain, named(t, store, "plain", hour)}, ""},
		{"two names with two policies", []*limiter.Limiter{plain, named(t, store, "other", limiter.PerHour(2))}, ""},
		{"two kinds for a name", []*limiter.Limiter{plain, named(t, store, "plain", limiter.FixedWindow{Limit: 1, Window: time.Hour})}, ""},
		{"failure policies", []*limiter.Limiter{plain, local, planned, named(t, store, "open", hour, limiter.FailOpen())}, ""},
		{"none", nil, "0 claims"},
		{"too many", many, "9 claims"},
		{"nil", []*limiter.Limiter{plain, nil}, "is nil"},
		{"no store", []*limiter.Limiter{plain, plain.On(nil)}, "store"},
		{"stores", []*limiter.Limiter{plain, named(t, memory.New(), "other", hour)}, "different stores"},
		{"a store without DoAll", []*limiter.Limiter{named(t, &brokenStore{}, "broken", hour)}, "cannot decide over several limits"},
		{"clocks", []*limiter.Limiter{planned, newLimiter(t, store, hour)}, "WithClock"},
		{"fallbacks", []*limiter.Limiter{local, planned, named(t, store, "second", hour, limiter.FailLocal(memory.New()))}, "different fallbacks"},
		{"policies", []*limiter.Limiter{plain, planned, named(t, store, "plain", limiter.PerHour(2))}, "different policies"},
		{"two Locations of one name", []*limiter.Limiter{named(t, store, "day", daily("zone")), named(t, store, "day", daily("zone"))}, "load each Location once"},
		{"refusals that count", []*limiter.Limiter{planned, named(t, store, "counts", limiter.FixedWindow{Limit: 1, Window: time.Hour, CountRejected: true})}, "CountRejected"},
	} {
		for range 2 {
			err := limiter.CheckAll(c.limiters...)
			if c.text == "" && err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			if c.text != "" && (!errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), c.text)) {
				t.Errorf("%s: %v, want ErrInvalid that says %q", c.what, err, c.text)
			}
			slices.Reverse(c.limiters)
		}
	}
}

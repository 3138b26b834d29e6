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

// named returns a Limiter with a name.
func named(t *testing.T, s limiter.Store, name string, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(s, name, p, append(opts, fixed())...)
	must(t, err)
	return l
}

// claims are claims of cost 1 on the key "k".
func claims(ls ...*limiter.Limiter) (cs []limiter.Claim) {
	for _, l := range ls {
		cs = append(cs, limiter.Claim{Limiter: l, Key: "k"})
	}
	return cs
}

// What is wrong with the limiters, CheckAll and AllowAll say alike.
func TestCheckAll(t *testing.T) {
	t.Parallel()
	store, hour := memory.New(), limiter.PerHour(1)
	plain := named(t, store, "plain", hour)
	other := named(t, store, "other", limiter.PerHour(2))
	local := named(t, store, "local", hour, limiter.FailLocal(memory.New()))
	planned := named(t, store, "planned", hour, limiter.WithPolicyFor(func(context.Context, string) (limiter.Policy, error) {
		panic("CheckAll chose a policy")
	}))
	daily := func(zone string) limiter.Policy {
		return limiter.CalendarWindow{Limit: 1, Period: limiter.Day, Location: time.FixedZone(zone, 3600)}
	}
	many := slices.Repeat([]*limiter.Limiter{plain}, limiter.MaxClaims+1)
	invalid, unsupported := limiter.ErrInvalid, errors.ErrUnsupported
	for _, c := range []struct {
		what     string
		limiters []*limiter.Limiter
		class    error // which the error matches beside ErrInvalid; nil if there is none
		text     string
	}{
		{"one", many[:1], nil, ""},
		{"the most", many[1:], nil, ""},
		{"equal names and policies", []*limiter.Limiter{plain, named(t, store, "plain", hour)}, nil, ""},
		{"two names with two policies", []*limiter.Limiter{plain, other}, nil, ""},
		{"two kinds for a name", []*limiter.Limiter{plain, named(t, store, "plain", limiter.FixedWindow{Limit: 1, Window: time.Hour})}, nil, ""},
		{"failure policies", []*limiter.Limiter{plain, local, planned, named(t, store, "open", hour, limiter.FailOpen())}, nil, ""},
		{"none", nil, invalid, "0 claims"},
		{"too many", many, invalid, "9 claims"},
		{"nil", []*limiter.Limiter{plain, nil}, invalid, "is nil"},
		{"no store", []*limiter.Limiter{plain, plain.On(nil)}, invalid, "store"},
		{"only no store", []*limiter.Limiter{plain.On(nil)}, invalid, "passed to On is nil"},
		{"stores", []*limiter.Limiter{plain, named(t, memory.New(), "other", hour)}, invalid, "different stores"},
		{"a store without DoAll", []*limiter.Limiter{plain.On(refusing(limiter.State{}))}, unsupported, "cannot decide over several limits"},
		{"a store without ==", []*limiter.Limiter{plain.On(wideStore{store, nil})}, invalid, "cannot be compared"},
		{"clocks", []*limiter.Limiter{plain, other, newLimiter(t, store, hour)}, invalid, "WithClock"},
		{"fallbacks", []*limiter.Limiter{local, other, named(t, store, "second", hour, limiter.FailLocal(memory.New()))}, invalid, "different fallbacks"},
		{"policies", []*limiter.Limiter{plain, other, named(t, store, "plain", limiter.PerHour(2))}, invalid, "different policies"},
		{"two Locations of one name", []*limiter.Limiter{named(t, store, "day", daily("zone")), named(t, store, "day", daily("zone"))}, invalid, "load each Location once"},
		{"refusals that count", []*limiter.Limiter{plain, named(t, store, "counts", limiter.FixedWindow{Limit: 1, Window: time.Hour, CountRejected: true})}, unsupported, "CountRejected"},
	} {
		says := func(f string, err error) {
			t.Helper()
			if !errors.Is(err, limiter.ErrInvalid) || !errors.Is(err, c.class) || limiter.StoreFailed(err) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %s: %v, want ErrInvalid and %v that says %q", c.what, f, err, c.class, c.text)
			}
		}
		for range 2 {
			err := limiter.CheckAll(c.limiters...)
			if c.class == nil {
				if err != nil {
					t.Errorf("%s: %v", c.what, err)
				}
				continue
			}
			says("CheckAll", err)
			res, err := limiter.AllowAll(t.Context(), claims(c.limiters...)...)
			if says("AllowAll", err); res.Allowed || res.Each != nil {
				t.Errorf("%s: %+v, want a refusal", c.what, res)
			}
			slices.Reverse(c.limiters)
		}
	}
	mustAllow(t, plain, true) // nothing was charged
}

func TestAllowAllSaysWhatIsWrongWithItsClaims(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, memory.New(), limiter.PerSecond(5))
	claim := limiter.Claim{Limiter: l, Key: "k", Cost: 5}
	for name, c := range map[string]struct {
		claims []limiter.Claim
		class  error
	}{
		"no key":                    {[]limiter.Claim{{Limiter: l}}, limiter.ErrInvalid},
		"a cost over the limit":     {[]limiter.Claim{{Limiter: l, Key: "k", Cost: 6}}, limiter.ErrExceedsCapacity},
		"a sum over the limit":      {[]limiter.Claim{{Limiter: l, Key: "k", Cost: 1}, claim}, limiter.ErrExceedsCapacity},
		"a sum that would overflow": {slices.Repeat([]limiter.Claim{claim}, limiter.MaxClaims), limiter.ErrExceedsCapacity},
	} {
		res, err := limiter.AllowAll(t.Context(), c.claims...)
		if !errors.Is(err, c.class) || res.Allowed || res.Each != nil || limiter.StoreFailed(err) {
			t.Errorf("%s: %+v, %v, want a refusal with %v", name, res, err, c.class)
		}
	}
	if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 5 {
		t.Errorf("afterwards the key has %+v, %v, want all", res, err)
	}
}

// wideStore is an AllStore that cannot be compared.
type wideStore struct {
	*memory.Store
	_ []int
}

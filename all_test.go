package limiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func TestAllowAllSaysWhatIsWrongWithItsClaims(t *testing.T) {
	t.Parallel()
	store := memory.New()
	bucket := newLimiter(t, store, limiter.PerSecond(5))
	other := newLimiter(t, memory.New(), limiter.PerSecond(5))
	counts := newLimiter(t, store, limiter.FixedWindow{Limit: 5, Window: time.Hour, CountRejected: true})
	clocked := newLimiter(t, store, limiter.PerHour(5), limiter.WithClock(time.Now))
	changed := newLimiter(t, store, limiter.PerHour(5))
	unable := newLimiter(t, struct{ limiter.Store }{store}, limiter.PerSecond(5))
	incomparable := newLimiter(t, wideStore{store, nil}, limiter.PerSecond(5))
	claim := func(l *limiter.Limiter) limiter.Claim { return limiter.Claim{Limiter: l, Key: "k"} }
	for name, c := range map[string]struct {
		claims []limiter.Claim
		class  error
	}{
		"no claims":                 {nil, limiter.ErrInvalid},
		"nine claims":               {make([]limiter.Claim, 9), limiter.ErrInvalid},
		"no limiter":                {[]limiter.Claim{{Key: "k"}}, limiter.ErrInvalid},
		"no key":                    {[]limiter.Claim{{Limiter: bucket}}, limiter.ErrInvalid},
		"a negative cost":           {[]limiter.Claim{{Limiter: bucket, Key: "k", Cost: -1}}, limiter.ErrInvalid},
		"two stores":                {[]limiter.Claim{claim(bucket), claim(other)}, limiter.ErrInvalid},
		"a window that counts":      {[]limiter.Claim{claim(counts)}, errors.ErrUnsupported},
		"one clock":                 {[]limiter.Claim{claim(bucket), claim(clocked)}, limiter.ErrInvalid},
		"two policies":              {[]limiter.Claim{claim(bucket), claim(changed)}, limiter.ErrInvalid},
		"a store without DoAll":     {[]limiter.Claim{claim(unable)}, errors.ErrUnsupported},
		"a store without ==":        {[]limiter.Claim{claim(incomparable)}, limiter.ErrInvalid},
		"On(nil)":                   {[]limiter.Claim{claim(bucket.On(nil))}, limiter.ErrInvalid},
		"a cost over the limit":     {[]limiter.Claim{{Limiter: bucket, Key: "k", Cost: 6}}, limiter.ErrExceedsCapacity},
		"a sum over the limit":      {[]limiter.Claim{{Limiter: bucket, Key: "k", Cost: 3}, {Limiter: bucket, Key: "k", Cost: 3}}, limiter.ErrExceedsCapacity},
		"a sum that would overflow": {overflow(bucket), limiter.ErrExceedsCapacity},
	} {
		res, err := limiter.AllowAll(t.Context(), c.claims...)
		if !errors.Is(err, c.class) || res.Allowed || res.Each != nil || limiter.StoreFailed(err) {
			t.Errorf("%s: %+v, %v, want a refusal with %v", name, res, err, c.class)
		}
	}
	if res, err := bucket.Peek(t.Context(), "k"); err != nil || res.Remaining != 5 {
		t.Errorf("afterwards the key has %+v, %v, want all", res, err)
	}
}

func overflow(l *limiter.Limiter) (claims []limiter.Claim) {
	for range limiter.MaxClaims {
		claims = append(claims, limiter.Claim{Limiter: l, Key: "k", Cost: 5})
	}
	return claims
}

// wideStore is an AllStore that cannot be compared.
type wideStore struct {
	*memory.Store
	_ []int
}

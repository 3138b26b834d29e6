package prove_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/kinds"
)

// A table holds instants from 1970 to 2116. A take by a clock that is not between them is
// ErrInvalid, whom nobody lets in, and leaves the key as it was.
func TestClockOutOfRange(t *testing.T) {
	server, clock := cluster.NewWithClock(t, durable...)
	migrate(t, server.DSN())
	store := openStore(t, server.DSN())
	var all []*limiter.Limiter
	for _, c := range kinds.Clocked {
		l, err := limiter.New(store, c.Name, c.Policy, limiter.FailOpen(), limiter.WithTimeout(waitLimit))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	const old = "a key that there is"
	granted := func(l *limiter.Limiter) limiter.Result {
		t.Helper()
		res, err := l.Allow(t.Context(), old)
		if err != nil || !res.Allowed || res.Source != limiter.SourceStore {
			t.Fatalf("%s: by a clock that is right a take is %+v, %v", l.Name(), res, err)
		}
		return res
	}
	for _, l := range all {
		granted(l)
	}
	for _, years := range []int{1900, 1969, 2117, 2200} {
		at := time.Date(years, 7, 1, 0, 0, 0, 0, time.UTC)
		clock.Set(time.Until(at))
		for _, l := range all {
			for _, key := range []string{old, at.String()} {
				if res, err := l.Allow(t.Context(), key); !errors.Is(err, limiter.ErrInvalid) || res.Allowed {
					t.Errorf("%s: in %d a take from %s is %+v, %v, want ErrInvalid", l.Name(), years, key, res, err)
				}
			}
		}
	}
	clock.Set(0)
	for _, l := range all {
		if res := granted(l); kinds.Lockout(l.Policy()) > 24*time.Hour && res.Remaining != res.Limit-2 {
			t.Errorf("%s: %d are left of %d after two takes, and some that could not be", l.Name(), res.Remaining, res.Limit)
		}
	}
}

package overrides_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/overrides"
)

// list is a source.
type list []limiter.Override

func (l list) Overrides(context.Context, string, int) ([]limiter.Override, error) { return l, nil }

func TestBase(t *testing.T) {
	t.Parallel()
	month := limiter.CalendarWindow{Limit: 100, Period: limiter.Month, StartDay: 1, Location: time.UTC}
	window := limiter.FixedWindow{Limit: 100, Window: time.Hour, CountRejected: true}
	own := limiter.PerMinute(3)
	source := list{
		{Key: "more", Limit: 900},
		{Key: "over", Limit: 5, ExpiresAt: time.Now()},
		{Key: "below", Limit: -1},
		{Key: "above", Limit: math.MaxInt64},
		{Key: "policy", Policy: own},
	}
	for name, c := range map[string]struct {
		base, more limiter.Policy
		says       string
	}{
		"calendar":  {month, limiter.CalendarWindow{Limit: 900, Period: limiter.Month}, "must be 1 to 2^60"},
		"window":    {window, limiter.FixedWindow{Limit: 900, Window: time.Hour, CountRejected: true}, "must be 1 to 2^60"},
		"sliding":   {limiter.SlidingWindow{Limit: 100, Window: time.Hour}, limiter.SlidingWindow{Limit: 900, Window: time.Hour}, "must be 1 to 2^60"},
		"in flight": {limiter.InFlight{Limit: 10, Hold: time.Minute}, limiter.InFlight{Limit: 900, Hold: time.Minute}, "must be 1 to 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []error
			f := overrides.New(source, "l", overrides.Base(c.base), overrides.OnError(func(err error) { seen = append(seen, err) }))
			for key, want := range map[string]limiter.Policy{"more": c.more, "over": nil, "none": nil, "policy": own} {
				if got, err := f(t.Context(), key); err != nil || got != want {
					t.Errorf("%s: %v, %v; want %v", key, got, err, want)
				}
			}
			for _, key := range []string{"below", "above"} {
				if got, err := f(t.Context(), key); !errors.Is(err, limiter.ErrInvalid) || got != nil {
					t.Errorf("%s: %v, %v; want ErrInvalid", key, got, err)
				}
			}
			if len(seen) != 1 || !errors.Is(seen[0], limiter.ErrInvalid) || !strings.Contains(seen[0].Error(), c.says) {
				t.Errorf("OnError got %v, want ErrInvalid once", seen)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		calls := 0
		f := overrides.New(source, "l", overrides.OnError(func(error) { calls++ }))
		for range 2 {
			if got, err := f(t.Context(), "more"); !errors.Is(err, limiter.ErrInvalid) || got != nil || !strings.Contains(err.Error(), "pass Base") {
				t.Errorf("%v, %v; want ErrInvalid that says what to pass", got, err)
			}
		}
		if got, err := f(t.Context(), "policy"); err != nil || got != own {
			t.Errorf("%v, %v; want %v", got, err, own)
		}
		testenv.Equal(t, calls, 1, "calls of OnError")
	})
	t.Run("of another kind", func(t *testing.T) {
		t.Parallel()
		for _, base := range []limiter.Policy{nil, own, &month, limiter.FixedWindow{}, limiter.InFlight{}} {
			if _, err := overrides.New(source, "l", overrides.Base(base))(t.Context(), "k"); !errors.Is(err, limiter.ErrInvalid) {
				t.Errorf("%v: %v, want ErrInvalid", base, err)
			}
		}
	})
}

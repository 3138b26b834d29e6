package middleware_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/middleware"
)

func TestCauseOf(t *testing.T) {
	t.Parallel()
	noUser := middleware.NoKey(middleware.WithoutUser, "no %s", "user")
	for name, test := range map[string]struct {
		err  error
		want middleware.Cause
	}{
		"a store that failed":         {limiter.ErrNotApplied, middleware.NoDecision},
		"a negative cost":             {limiter.ErrInvalid, middleware.Misused},
		"a cost that is too high":     {fmt.Errorf("%w: 5", limiter.ErrExceedsCapacity), middleware.TooCostly},
		"an error of the application": {fmt.Errorf("%w: %w", middleware.ErrNoKey, limiter.ErrInvalid), middleware.WithoutKey},
		"an error of NoKey":           {noUser, middleware.WithoutUser},
		"an error that wraps it":      {fmt.Errorf("alice: %w", noUser), middleware.WithoutUser},
		"another cause for NoKey":     {middleware.NoKey(middleware.TooCostly, "a mistake"), middleware.WithoutKey},
		"no cause for NoKey":          {middleware.NoKey(middleware.WithoutUser+1, "a mistake"), middleware.WithoutKey},
	} {
		if got := middleware.CauseOf(test.err); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if !errors.Is(noUser, middleware.ErrNoKey) || noUser.Error() != "limiter: the request has no key: no user" {
		t.Errorf("NoKey returned %q", noUser)
	}
	if got := middleware.Cause(255).String(); got != middleware.NoDecision.String() {
		t.Errorf("an unknown cause is %q", got)
	}
}

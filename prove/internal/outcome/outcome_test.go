package outcome_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

func TestAnAnswerHasOneClass(t *testing.T) {
	for want, err := range map[string]error{
		outcome.NotApplied:    fmt.Errorf("limiter: %w", limiter.ErrNotApplied),
		outcome.Unknown:       limiter.ErrOutcomeUnknown,
		outcome.Canceled:      fmt.Errorf("%w: %w", limiter.ErrCanceled, context.Canceled),
		outcome.CanceledLate:  fmt.Errorf("%w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown),
		outcome.Misconfigured: limiter.ErrMisconfigured,
		outcome.Invalid:       limiter.ErrInvalid,
		outcome.Other:         errors.New("anything"),
		outcome.Refused:       nil,
	} {
		if got := outcome.Of(false, err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
	if got := outcome.Of(true, nil); got != outcome.Carried {
		t.Errorf("a success is %q", got)
	}
	if got := outcome.Of(false, fmt.Errorf("%w: %w", limiter.ErrNotApplied, limiter.ErrOutcomeUnknown)); got != outcome.Other {
		t.Errorf("an error that says two things is %q", got)
	}
}

func TestWhatMayHaveBeenCarriedOutIsBounded(t *testing.T) {
	certain, possible := outcome.Bounds(map[string]int64{
		outcome.Carried: 1, outcome.Refused: 2, outcome.NotApplied: 4, outcome.Unknown: 8,
		outcome.Canceled: 16, outcome.CanceledLate: 32, outcome.Other: 64,
	})
	if certain != 1 || possible != 8+32+64 {
		t.Errorf("%d certain and %d possible, want 1 and 104", certain, possible)
	}
}

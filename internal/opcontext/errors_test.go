package opcontext_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

var errBroken = errors.New("broken")

func TestClassified(t *testing.T) {
	t.Parallel()
	for _, class := range []error{
		limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrInvalid, limiter.ErrCanceled,
	} {
		if !opcontext.Classified(class) || !opcontext.Classified(fmt.Errorf("x: %w: %w", class, errBroken)) {
			t.Errorf("%v is not one", class)
		}
	}
	for _, other := range []error{nil, errBroken, context.Canceled, errors.ErrUnsupported} {
		if opcontext.Classified(other) {
			t.Errorf("%v is one", other)
		}
	}
}

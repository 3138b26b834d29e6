package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

var errBroken = errors.New("broken")

func TestClassified_knows_the_classes_of_the_limiter_and_nothing_else(t *testing.T) {
	t.Parallel()
	for _, class := range []error{
		limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrInvalid, limiter.ErrCanceled,
	} {
		if !sqlstore.Classified(class) || !sqlstore.Classified(fmt.Errorf("x: %w: %w", class, errBroken)) {
			t.Errorf("%v is not one", class)
		}
	}
	for _, other := range []error{nil, errBroken, context.Canceled, errors.ErrUnsupported} {
		if sqlstore.Classified(other) {
			t.Errorf("%v is one", other)
		}
	}
}

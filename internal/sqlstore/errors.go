package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlimit/limiter"
)

// Classified reports whether err has its class already, as that of a statement in
// a transaction of the store's own has.
func Classified(err error) bool {
	return errors.Is(err, limiter.ErrNotApplied) || errors.Is(err, limiter.ErrOutcomeUnknown) ||
		errors.Is(err, limiter.ErrMisconfigured) || errors.Is(err, limiter.ErrInvalid) ||
		errors.Is(err, limiter.ErrCanceled)
}

// Interrupted returns the error of an operation that ctx ended, where err is what
// the driver made of it, or nil, and class is whether the operation was carried out.
// If the caller ended ctx that stands first; if a [Limit] did, the driver's error is
// only quoted, because it says that the caller did.
func Interrupted(ctx context.Context, class, err error) error {
	if ended := Ended(ctx); ended != nil {
		canceled := fmt.Errorf("%w: %w", limiter.ErrCanceled, ended)
		if errors.Is(class, limiter.ErrOutcomeUnknown) {
			canceled = fmt.Errorf("%w: %w", canceled, class)
		}
		return wrap(canceled, err)
	}
	late := fmt.Errorf("%w: %w", class, errLimit)
	if err == nil || err.Error() == context.Canceled.Error() {
		return late
	}
	return fmt.Errorf("%w: %v", late, err) //nolint:errorlint // it would match context.Canceled
}

func wrap(outer, err error) error {
	if err == nil {
		return outer
	}
	return fmt.Errorf("%w: %w", outer, err)
}

package sqlstore

import (
	"errors"

	"github.com/sqlimit/limiter"
)

// Classified reports whether err has its class already, as that of a statement in
// a transaction of the store's own has.
func Classified(err error) bool {
	return errors.Is(err, limiter.ErrNotApplied) || errors.Is(err, limiter.ErrOutcomeUnknown) ||
		errors.Is(err, limiter.ErrMisconfigured) || errors.Is(err, limiter.ErrInvalid) ||
		errors.Is(err, limiter.ErrCanceled)
}

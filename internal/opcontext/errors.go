package opcontext

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlimit/limiter"
)

// Classified reports whether err already has a class.
func Classified(err error) bool {
	return errors.Is(err, limiter.ErrNotApplied) || errors.Is(err, limiter.ErrOutcomeUnknown) ||
		errors.Is(err, limiter.ErrMisconfigured) || errors.Is(err, limiter.ErrInvalid) ||
		errors.Is(err, limiter.ErrCanceled)
}

// Interrupted returns the error of an operation that ctx ended. err is the driver's error, or nil.
// class says whether the operation was carried out. If the caller ended ctx, or its deadline left
// too little time, the error is [limiter.ErrCanceled].
//
// If a [Context] ended the context, the driver says that it was canceled, as if by the caller. The
// error then quotes the driver's and does not match it. If the operation was not sent, the error
// says what it waited for.
func Interrupted(ctx context.Context, class, err error) error {
	byTimeLimit, waitReason := timedOut(ctx)
	unknown := errors.Is(class, limiter.ErrOutcomeUnknown)
	cause := errTimedOut
	if ended := EndedByCaller(ctx); ended != nil {
		if unknown {
			ended = fmt.Errorf("%w: %w", ended, class)
		}
		class, cause = limiter.ErrCanceled, ended
	}
	if waitReason != "" && !unknown {
		cause = fmt.Errorf("%s: %w", waitReason, cause)
	}
	outer := fmt.Errorf("%w: %w", class, cause)
	switch {
	case err == nil || err.Error() == context.Canceled.Error():
		return outer
	case byTimeLimit:
		return fmt.Errorf("%w: %v", outer, err) //nolint:errorlint // it would match context.Canceled
	}
	return fmt.Errorf("%w: %w", outer, err)
}

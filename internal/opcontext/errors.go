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

// ShortDeadline returns an error that matches [limiter.ErrCanceled] if the caller's deadline leaves the
// operation of ctx less than its time limit. Otherwise it returns nil.
func ShortDeadline(ctx context.Context) error {
	c, ok := ctx.Value(contextKey{}).(*Context)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shortDeadline {
		return nil
	}
	return fmt.Errorf("%w: %w", limiter.ErrCanceled, c.deadlineTooNear())
}

// LockTimeout returns the error of a statement that waited for a row lock as long as [LockWait]
// allowed. err is the driver's error. If the caller's deadline left less than the time limit, the error
// is [limiter.ErrCanceled], otherwise [limiter.ErrNotApplied].
func LockTimeout(ctx context.Context, err error) error {
	if short := ShortDeadline(ctx); short != nil {
		return fmt.Errorf("%w: %w", short, err)
	}
	return fmt.Errorf("%w: %w: %w", limiter.ErrNotApplied, errTimedOut, err)
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

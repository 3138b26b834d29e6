package opcontext

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlimit/limiter"
)

// errTimedOut is the cause if the operation used up its time.
var errTimedOut = fmt.Errorf("no answer within the time limit: %w", context.DeadlineExceeded)

// deadlineTooNear returns the cause if the caller's deadline left the operation less than its time.
func (c *Context) deadlineTooNear() error {
	return fmt.Errorf("the context's deadline leaves less than the time limit of %v; "+
		"use a later deadline, or a shorter limit with limiter.WithTimeout: %w", c.timeout, context.DeadlineExceeded)
}

// HasTimeLimit reports whether a time limit ends ctx.
func HasTimeLimit(ctx context.Context) bool {
	return ctx.Value(contextKey{}) != nil
}

// EndedByCaller returns the error of a context that the caller ended, also by a deadline that left
// the operation less than its time. It returns nil if the context has not ended, or if the
// operation used up its time.
func EndedByCaller(ctx context.Context) error {
	if c, ok := ctx.Value(contextKey{}).(*Context); ok {
		c.mu.Lock()
		cause := c.cause
		c.mu.Unlock()
		switch {
		case errors.Is(cause, errTimedOut):
			return nil
		case cause != nil:
			return cause
		}
		if err := c.Context.Err(); err != nil { // also while the statement may continue
			return err
		}
	}
	return ctx.Err()
}

// CallerErr returns the error of the caller's context. A [Context] may continue for a while after
// that has ended, and may end before it.
func CallerErr(ctx context.Context) error {
	if c, ok := ctx.(*Context); ok {
		return c.Context.Err()
	}
	return ctx.Err()
}

// timedOut reports whether a Context ended ctx, not the caller. If it is known, timedOut also
// returns why the operation had no connection.
func timedOut(ctx context.Context) (ended bool, waitReason string) {
	c, ok := ctx.Value(contextKey{}).(*Context)
	if !ok {
		return false, ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause != nil, c.waitReason
}

// Classified reports whether err already has a class.
func Classified(err error) bool {
	return errors.Is(err, limiter.ErrNotApplied) || errors.Is(err, limiter.ErrOutcomeUnknown) ||
		errors.Is(err, limiter.ErrMisconfigured) || errors.Is(err, limiter.ErrInvalid) ||
		errors.Is(err, limiter.ErrCanceled)
}

// Due returns when the time of ctx's operation ends. short reports whether the caller's deadline left it less than its
// time limit, from the start or at [Renew]. Due returns zero values if ctx has no time limit.
func Due(ctx context.Context) (due time.Time, short bool) {
	if c, ok := ctx.Value(contextKey{}).(*Context); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		due, short = c.due, c.shortDeadline
	}
	return due, short
}

// Began returns when the time of ctx's operation began: as long before its end as the time limit. It moves when the
// operation gets more time. Began returns the zero time if ctx has no time limit.
func Began(ctx context.Context) (began time.Time) {
	if c, ok := ctx.Value(contextKey{}).(*Context); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		began = c.due.Add(-c.timeout)
	}
	return began
}

// ShortDeadline returns an error that matches [limiter.ErrCanceled] if the caller's deadline leaves the
// operation of ctx less than its time limit. Otherwise it returns nil.
func ShortDeadline(ctx context.Context) error {
	if _, short := Due(ctx); !short {
		return nil
	}
	return fmt.Errorf("%w: %w", limiter.ErrCanceled, ctx.Value(contextKey{}).(*Context).deadlineTooNear())
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

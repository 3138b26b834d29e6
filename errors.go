package limiter

import "errors"

// The classes of errors. Every error of a [Limiter] or a store matches at least one of
// them with [errors.Is], but for [errors.ErrUnsupported] from a store that does
// not know an operation. None of their texts holds a key. A refusal is a
// [Result], not an error: an error means that no decision was made, or that the
// request can never pass.
var (
	// ErrInvalid is returned when an argument, option or policy is wrong; the
	// text names the mend. Nothing was charged, and the same call fails again.
	ErrInvalid = errors.New("limiter: invalid")

	// ErrExceedsCapacity is returned when a request costs more than the policy
	// can ever admit at once. Nothing was charged or counted.
	ErrExceedsCapacity = errors.New("limiter: cost exceeds capacity")

	// ErrExceedsMaxWait is returned by [Limiter.Wait] and [Limiter.WaitN] when
	// the wait would be longer than [WithMaxWait] allows or than the context
	// lasts; in the latter case the error also matches
	// [context.DeadlineExceeded]. Nothing was booked.
	ErrExceedsMaxWait = errors.New("limiter: wait exceeds the longest wait")

	// ErrNotApplied is returned when the store failed and the operation is
	// known not to have been carried out, so that it may be sent again; or when it
	// was not sent, because the database has failed at all that was sent before.
	ErrNotApplied = errors.New("limiter: not applied")

	// ErrOutcomeUnknown is returned when the store failed after the operation
	// may have reached it. It was carried out once or not at all.
	ErrOutcomeUnknown = errors.New("limiter: outcome unknown")

	// ErrMisconfigured is returned when the store cannot work as it is set up:
	// tables or privileges are missing, say. The text names the mend where there
	// is one.
	ErrMisconfigured = errors.New("limiter: misconfigured")

	// ErrCanceled is returned when the caller's context ended; the error also
	// matches [context.Canceled] or [context.DeadlineExceeded]. If it matches
	// [ErrOutcomeUnknown] as well, the operation may have been carried out.
	ErrCanceled = errors.New("limiter: canceled")
)

// StoreFailed reports whether err says that the store alone failed: not the input,
// nor the set-up, nor the caller's own cancellation. Of these errors alone may a
// failure policy, [FailOpen], [FailLocal] or one of the caller's own, let a request pass.
func StoreFailed(err error) bool {
	for _, other := range []error{ErrInvalid, ErrExceedsCapacity, ErrMisconfigured, ErrCanceled, errors.ErrUnsupported} {
		if errors.Is(err, other) {
			return false
		}
	}
	return errors.Is(err, ErrNotApplied) || errors.Is(err, ErrOutcomeUnknown)
}

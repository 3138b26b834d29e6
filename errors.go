package limiter

import "errors"

// The classes of errors. Every error of a [Limiter] or a store matches at least one of
// them with [errors.Is], but for [errors.ErrUnsupported] from a store that does
// not know an operation. None of their texts holds a key. A refusal is a
// [Result], not an error: an error means that no decision was made, or that the
// request can never pass.
var (
	// ErrInvalid is returned when an argument, option or policy is wrong; the
	// text says what to do. Nothing was charged, and the same call fails again.
	ErrInvalid = errors.New("limiter: invalid")

	// ErrExceedsCapacity is returned when a request costs more than the policy
	// can ever admit at once. Nothing was charged or counted.
	ErrExceedsCapacity = errors.New("limiter: cost exceeds capacity")

	// ErrExceedsMaxWait is returned by [Limiter.Wait] and [Limiter.WaitN] when
	// the wait would be longer than [WithMaxWait] allows or than the context
	// lasts; in the latter case the error also matches
	// [context.DeadlineExceeded]. Nothing was booked.
	ErrExceedsMaxWait = errors.New("limiter: wait exceeds the longest wait")

	// ErrNotApplied is returned when the store failed, and certainly did not carry the
	// operation out: the caller may retry it. The store may not have tried, because the
	// operations before it failed.
	ErrNotApplied = errors.New("limiter: not applied")

	// ErrKeyBusy is returned together with [ErrNotApplied] when an operation timed out
	// in this process, in the queue of its key, before it was sent: more callers use
	// the key at once than the store can serve, or a transaction holds its row. Nothing was
	// charged. The caller may retry later. The store did not fail, so [StoreFailed] reports false, and no
	// failure policy answers: overloading a key does not bypass its limit.
	ErrKeyBusy = errors.New("limiter: key is busy")

	// ErrOutcomeUnknown is returned when the store failed after the operation
	// may have reached it. It was carried out once or not at all.
	ErrOutcomeUnknown = errors.New("limiter: outcome unknown")

	// ErrMisconfigured is returned when the store cannot work as it is set up: for
	// example, tables or privileges are missing. Where the store knows what an operator
	// must do, the text says so.
	ErrMisconfigured = errors.New("limiter: misconfigured")

	// ErrCanceled is returned when the caller's context ended; the error also
	// matches [context.Canceled] or [context.DeadlineExceeded]. If it matches
	// [ErrOutcomeUnknown] as well, the operation may have been carried out.
	ErrCanceled = errors.New("limiter: canceled")
)

// StoreFailed reports whether the store caused err: not the input, the setup, the
// caller's own cancellation, or a key that too many callers use ([ErrKeyBusy]). A failure
// policy ([FailOpen], [FailLocal] or one of the caller's own) may let a request pass only
// for such an error.
func StoreFailed(err error) bool {
	for _, other := range []error{ErrInvalid, ErrExceedsCapacity, ErrMisconfigured, ErrCanceled, ErrKeyBusy, errors.ErrUnsupported} {
		if errors.Is(err, other) {
			return false
		}
	}
	return errors.Is(err, ErrNotApplied) || errors.Is(err, ErrOutcomeUnknown)
}

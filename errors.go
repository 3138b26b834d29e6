package limiter

import "errors"

// The classes of errors. Every error of a [Limiter] or a store matches at least one of them with
// [errors.Is]. The only exception is [errors.ErrUnsupported] from a store that does not know an
// operation. No error text contains a key.
//
// A refusal is a [Result], not an error. An error means that there was no decision, or that the
// request can never pass.
var (
	// ErrInvalid means that an argument, option or policy is wrong. The text says what to do.
	// Nothing was charged, and the same call fails again.
	ErrInvalid = errors.New("limiter: invalid")

	// ErrExceedsCapacity means that a request costs more than the policy ever admits at once.
	// Nothing was charged or counted.
	ErrExceedsCapacity = errors.New("limiter: cost exceeds capacity")

	// ErrExceedsMaxWait means that [Limiter.Wait] or [Limiter.WaitN] would wait longer than
	// [WithMaxWait] or the context's deadline allows. If the deadline is the cause, the error also
	// matches [context.DeadlineExceeded]. Nothing was booked.
	ErrExceedsMaxWait = errors.New("limiter: wait exceeds the longest wait")

	// ErrNotApplied means that the store failed and certainly did not carry out the operation, so
	// the caller may retry it. The store may not have sent it, because earlier operations failed.
	ErrNotApplied = errors.New("limiter: not applied")

	// ErrKeyBusy means that an operation timed out behind others: usually there are more callers than the
	// store can serve. So [StoreFailed] returns false and no failure policy applies: overloading a key
	// does not bypass its limit.
	//
	// It usually comes with [ErrNotApplied]. Then nothing was charged, and the caller may retry later. An
	// [AllowAll] also fails with it if other processes keep locking its rows, for less than 100 ms at a
	// time. If its last statement was cut off, the error matches [ErrOutcomeUnknown] instead.
	//
	// If the store answered no others in the last time limit, an operation that waited for a connection, or
	// behind one that did, fails with [ErrNotApplied] alone. So does such a one whose kind of limit only had
	// failures. Behind a statement of its key that was sent, an operation may be busy although the store hangs.
	//
	// While a transaction holds the key's row, callers that wait behind others may get ErrKeyBusy, and so
	// do those whose row was written meanwhile, or less than 100 ms before. The rest fail with
	// [ErrNotApplied]. On Citus, or if transactions change the row in turn, they may fail with
	// [ErrOutcomeUnknown]. A failure policy applies to these two: see [FailOpen].
	ErrKeyBusy = errors.New("limiter: key is busy")

	// ErrOutcomeUnknown means that the store failed after the operation may have reached it. The
	// operation was carried out once or not at all. A retry may charge twice.
	ErrOutcomeUnknown = errors.New("limiter: outcome unknown")

	// ErrMisconfigured means that the store cannot work as it is set up: for example, tables or
	// privileges are missing. The text says what an operator must do, if the store knows.
	ErrMisconfigured = errors.New("limiter: misconfigured")

	// ErrNoPolicy means that the function of [WithPolicyFor] failed. Nothing was charged.
	ErrNoPolicy = errors.New("limiter: no policy")

	// ErrCanceled means that the caller left, or that its deadline left too little time. The error also
	// matches [context.Canceled] or [context.DeadlineExceeded]. If it also matches [ErrOutcomeUnknown],
	// the operation may have been carried out.
	ErrCanceled = errors.New("limiter: canceled")
)

// StoreFailed reports whether the store caused err. It returns false if the cause is the input, the
// setup, the function of [WithPolicyFor], the caller's cancellation, or a key with too many callers
// ([ErrKeyBusy]). Let a request pass after an error only if StoreFailed returns true; [FailOpen] and
// [FailLocal] do the same.
func StoreFailed(err error) bool {
	for _, other := range []error{ErrInvalid, ErrExceedsCapacity, ErrMisconfigured, ErrNoPolicy, ErrCanceled, ErrKeyBusy, errors.ErrUnsupported} {
		if errors.Is(err, other) {
			return false
		}
	}
	return errors.Is(err, ErrNotApplied) || errors.Is(err, ErrOutcomeUnknown)
}

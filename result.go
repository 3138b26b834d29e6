package limiter

import (
	"fmt"
	"time"
)

// Result is what a [Limiter] returns for one request. All fields come from one reading of the key's
// state and one reading of the clock. The zero Result is a refusal that nothing decided. To compare
// Results, compare their exported fields: an unexported field is for [Limiter.RefundOf].
type Result struct {
	// Allowed reports whether the request may pass.
	Allowed bool
	// Limit is the bucket's capacity, the limit of a window, or the number of places.
	Limit int64
	// Remaining is the cost that could still pass now. It is never negative.
	Remaining int64
	// Used is what counts now: the count of the current window (with CountRejected including refusals), that
	// of the slices of a sliding window, or the places that are held. It is Limit while a reservation is in a
	// later window or slice, and 0 for a token bucket.
	Used int64
	// RetryAfter is the shortest wait after which the same request can pass, if nobody else takes
	// meanwhile, rounded up to the tick of the store's clock. It is 0 if Allowed. After
	// [Limiter.Charge] it is the wait for a request of cost 1.
	RetryAfter time.Duration
	// ResetAfter is the time until nothing counts anymore: the bucket is full, the window is over, no slice
	// counts, or the last lease has ended. After a change of policy it is exact from the key's next
	// grant on, because a refusal may leave the row under the old policy.
	ResetAfter time.Duration
	// Taken is what was taken from the key: the cost of a request that passed, also if [FailOpen] let
	// it pass, and of every [Limiter.Charge]. It is 0 for a refusal and a look.
	Taken int64
	// Source is what made the decision.
	Source Source
	// Policy is the policy that decided. It is nil if there was no decision.
	Policy Policy

	takenFrom takenFrom
}

// takenFrom is the window that Taken was taken from, for [Limiter.RefundOf]. The zero takenFrom means
// that nothing was taken.
type takenFrom struct {
	start, period int64 // of the row; for a bucket the start is 0
}

// takenFrom returns the window that op took from.
func (op *Op) takenFrom(s *State) takenFrom {
	if !s.Took && op.Kind != OpCharge {
		return takenFrom{}
	}
	return takenFrom{s.Row.Start, s.Row.Period}
}

// retryAfter sets RetryAfter, given the nanoseconds until the request can pass.
func (r *Result) retryAfter(op *Op, s *State, wait int64) {
	if s.Wait > 0 {
		wait = s.Wait
	}
	switch {
	case op.Kind == OpCharge && wait <= 0:
	case op.Kind == OpCharge || !r.Allowed:
		r.RetryAfter = retryAfter(wait, s.Tick)
	}
}

// Source is what made a decision. The zero Source means that there was no decision.
type Source uint8

const (
	// SourceStore is a decision of the store.
	SourceStore Source = iota + 1
	// SourceDenyCache is a refusal from memory, based on an earlier refusal by the store: see
	// [WithDenyCache].
	SourceDenyCache
	// SourceLocal is a decision of the fallback of [FailLocal] while the store fails.
	SourceLocal
	// SourcePolicy means that there was no decision. The Result is a refusal that comes with an error,
	// or with [FailOpen] a pass. Its numbers are 0, except Taken.
	SourcePolicy
)

// String returns the name of s in lower case, for use as a metric label.
func (s Source) String() string {
	switch s {
	case 0:
		return "none"
	case SourceStore:
		return "store"
	case SourceDenyCache:
		return "deny_cache"
	case SourceLocal:
		return "local"
	case SourcePolicy:
		return "policy"
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}

// lostRace is the RetryAfter of a request that was refused only because other processes kept
// changing the row. It is the shortest time that a caller can wait.
const lostRace = time.Microsecond

// retryAfter converts the nanoseconds until a refused request can pass to a wait on the store's
// clock. It rounds up to the next tick and is never 0.
func retryAfter(ns, tick int64) time.Duration {
	if ns <= 0 {
		return lostRace
	}
	return time.Duration(ceilTo(ns, tick))
}

// ceilTo rounds ns up to a multiple of tick. A tick below 2 changes nothing.
func ceilTo(ns, tick int64) int64 {
	if tick < 2 || ns%tick == 0 {
		return ns
	}
	return ns - ns%tick + tick
}

package limiter

import (
	"fmt"
	"time"
)

// Result is the answer to one request. All of its fields come from one reading
// of the key's state and one reading of the clock. The zero Result is a refusal
// by nobody. To compare Results, compare their fields: an unexported one says what was
// charged, for [Limiter.RefundOf].
type Result struct {
	// Allowed reports whether the request passed.
	Allowed bool
	// Limit is the bucket's capacity, or the requests per window.
	Limit int64
	// Remaining is what a request could still take now; never negative.
	Remaining int64
	// Used is what was counted in the current window: with CountRejected
	// refusals too; Limit while a reservation lies in a later window. It is 0
	// for token buckets.
	Used int64
	// RetryAfter is the least wait after which the same request can pass if
	// nobody else takes, to one tick of the store's clock. It is 0 if Allowed.
	RetryAfter time.Duration
	// ResetAfter is the time until the key is as if it had never been used.
	ResetAfter time.Duration
	// Source says who decided.
	Source Source

	charged charge
}

// charge is what a decision charged, for [Limiter.RefundOf]. The zero charge is nothing.
type charge struct {
	start, period int64 // of the row: the charged window; for a bucket the start is 0
}

// charge returns what the take that s reports charged.
func (s *State) charge() charge {
	if !s.Took {
		return charge{}
	}
	return charge{s.Row.Start, s.Row.Period}
}

// Source says who made a decision. The zero Source stands in a Result that no
// decision led to.
type Source uint8

const (
	// SourceStore is a decision of the store.
	SourceStore Source = iota + 1
	// SourceDenyCache is a refusal from memory, by what the store said of the
	// same key a moment ago: see [WithDenyCache].
	SourceDenyCache
	// SourceLocal is a decision of the fallback of [FailLocal], while the store is
	// down.
	SourceLocal
	// SourcePolicy is the answer when no decision could be had: a refusal, which
	// comes with an error, or with [FailOpen] a pass. It tells nothing of the
	// key: all numbers are 0.
	SourcePolicy
)

// String returns the source's name in lower case, as for a metric's label.
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

// lostRace is the RetryAfter of a request that was refused only because others
// kept changing the row under it: the shortest time that a caller can wait.
const lostRace = time.Microsecond

// retryAfter turns the nanoseconds until a refused request can pass into a
// wait on the store's clock: rounded up to the next tick, never 0.
func retryAfter(ns, tick int64) time.Duration {
	if ns <= 0 {
		return lostRace
	}
	return time.Duration(ceilTo(ns, tick))
}

// ceilTo rounds ns up to a multiple of tick; a tick below 2 changes nothing.
func ceilTo(ns, tick int64) int64 {
	if tick < 2 || ns%tick == 0 {
		return ns
	}
	return ns - ns%tick + tick
}

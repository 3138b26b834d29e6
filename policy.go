package limiter

import (
	"fmt"
	"time"
)

// Bounds of a policy. They keep every sum and product of the algorithms inside
// int64, whatever the clock says, so that no request can overflow its way in.
const (
	// minStep is the time of one token at the highest rate: one tick of
	// PostgreSQL's clock. A finer step could not be told apart there.
	minStep = time.Microsecond
	// minWindow is the shortest window: one tick of a millisecond clock.
	minWindow = time.Millisecond
	// maxSpan is the longest window, interval and time to fill a bucket: 30
	// years of 365.25 days, which is below 2^60 ns.
	maxSpan = 262_980 * time.Hour
	// maxLimit is the highest limit of a window: a count, which saturates at
	// 2^62, plus a cost is then still an int64.
	maxLimit = 1 << 60
)

// Policy is how much a key may do: a [TokenBucket], a [FixedWindow], a [CalendarWindow], a [SlidingWindow]
// or, for a [Concurrency], an [InFlight]. Pass it by value. Only this package implements the interface, so
// that every store knows every policy. String describes the policy to people,
// for example "5 per 1m0s, burst 5".
type Policy interface {
	fmt.Stringer
	// check reports what is wrong with the policy and how to fix it.
	check() error
	// limit is the highest cost that can ever pass.
	limit() int64
}

// checkSpan returns an error if a duration of a policy is out of bounds.
func checkSpan(field string, d, shortest time.Duration) error {
	switch {
	case d < shortest:
		return invalid("%s is %v; it must be at least %v", field, d, shortest)
	case d > maxSpan:
		return invalid("%s is %v; it must be at most 30 years (%v)", field, d, maxSpan)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

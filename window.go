package limiter

import (
	"fmt"
	"time"
)

// FixedWindow is a policy that allows at most Limit requests per Window. Windows are aligned to
// 1970-01-01T00:00:00Z, so that all callers share their edges. Around an edge, up to twice Limit can
// pass within an instant: half at the end of one window, half at the start of the next. A
// [TokenBucket] never admits more than its capacity at once.
//
// With CountRejected, refused requests also count. A client that keeps asking then stays refused
// until the window ends, and [Result].Used is the total of its requests. Every request then writes,
// and [Limiter.Reserve] and [Limiter.Wait] fail with [errors.ErrUnsupported].
//
// The zero FixedWindow is not valid.
type FixedWindow struct {
	Limit         int64         // the cost that passes per Window: 1 to 2^60
	Window        time.Duration // 1 ms to 30 years
	CountRejected bool          // refused requests also count
}

// String returns the policy as text, such as "100 per 1h0m0s window".
func (w FixedWindow) String() string {
	text := fmt.Sprintf("%d per %v window", w.Limit, w.Window)
	if w.CountRejected {
		text += ", counting refusals"
	}
	return text
}

func (w FixedWindow) check() error {
	if w.Limit < 1 || w.Limit > maxLimit {
		return invalid("FixedWindow.Limit is %d; it must be 1 to 2^60", w.Limit)
	}
	return checkSpan("FixedWindow.Window", w.Window, minWindow)
}

func (w FixedWindow) windows() windows {
	return windows{lim: w.Limit, length: int64(w.Window), counts: w.CountRejected}
}

func (w FixedWindow) limit() int64 { return w.Limit }

package handler

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sqlimit/limiter"
)

const (
	legacyLimit     = "X-Ratelimit-Limit"
	legacyRemaining = "X-Ratelimit-Remaining"
	legacyUsed      = "X-Ratelimit-Used"
	legacyReset     = "X-Ratelimit-Reset"
	legacyResource  = "X-Ratelimit-Resource"

	legacyNames = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Used, X-RateLimit-Reset, X-RateLimit-Resource"
)

// legacy writes the X-RateLimit headers as GitHub does.
type legacy struct {
	resource string
	bucket   bool
	edge     func(time.Time) time.Time // as in fields
}

// set writes the headers, unless those of an outer limiter are tighter. They cannot be lists.
func (l *legacy) set(h http.Header, res *limiter.Result) {
	if lines := h[legacyRemaining]; len(lines) == 1 && res.Allowed {
		if outer, err := strconv.ParseInt(lines[0], 10, 64); err == nil && outer <= res.Remaining {
			return
		}
	}
	used := res.Used
	if l.bucket {
		used = res.Limit - res.Remaining
	}
	set := func(name string, value int64) { h[name] = []string{strconv.FormatInt(value, 10)} }
	set(legacyLimit, res.Limit)
	set(legacyRemaining, res.Remaining)
	set(legacyUsed, used)
	set(legacyReset, l.reset(res.ResetAfter))
	h[legacyResource] = []string{l.resource}
}

// reset returns the instant at which the quota is whole again, in seconds since 1970, rounded up. The
// nearest end of a window keeps the answers to one window's requests the same, while the time that they
// took and the difference between the clocks are less than half a window together.
func (l *legacy) reset(after time.Duration) int64 {
	at := time.Now().Add(after)
	if l.edge != nil && after > 0 {
		at = l.edge(at)
	}
	s := at.Unix()
	if at.Nanosecond() > 0 {
		s++
	}
	return s
}

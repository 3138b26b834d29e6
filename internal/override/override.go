// Package override converts rows of the table limiter_overrides. The SQL stores call it.
package override

import (
	"fmt"
	"time"

	"github.com/sqlimit/limiter"
)

// Row is a row of the table, with 0 and "" for NULL.
type Row struct {
	Key                      string
	Kind                     string
	Capacity, Refill, Period int64
	Note                     string
	ExpiresAt                int64 // ns since 1970
}

// Override returns what the row means. The error matches [limiter.ErrMisconfigured] if the kind is
// unknown. Override does not check the policy: the limiter does that, for the requests of its key.
func (r Row) Override() (limiter.Override, error) {
	o := limiter.Override{Key: r.Key, Note: r.Note}
	switch r.Kind {
	case "bucket":
		o.Policy = limiter.TokenBucket{Capacity: r.Capacity, Refill: r.Refill, Interval: time.Duration(r.Period)}
	case "window":
		o.Policy = limiter.FixedWindow{Limit: r.Capacity, Window: time.Duration(r.Period)}
	case "window_counting":
		o.Policy = limiter.FixedWindow{Limit: r.Capacity, Window: time.Duration(r.Period), CountRejected: true}
	default:
		return limiter.Override{}, fmt.Errorf("%w: limiter_overrides has a row of kind %q, which this release does not know; change the row, or upgrade",
			limiter.ErrMisconfigured, r.Kind)
	}
	if r.ExpiresAt != 0 {
		o.ExpiresAt = time.Unix(0, r.ExpiresAt)
	}
	return o, nil
}

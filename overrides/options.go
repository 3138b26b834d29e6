package overrides

import (
	"bytes"
	"time"

	"github.com/sqlimit/limiter"
)

// Option changes what the function of [New] does.
type Option func(*options) error

// options are the settings.
type options struct {
	maxAge  time.Duration
	secret  []byte
	onError func(error)
	base    limiter.Policy // nil without Base
	now     func() instant // replaced by tests
}

// MaxAge sets how old the copy of the overrides may become before a request reads them again. It must
// be above 0. The default is 10 s. The age is that of the wall clock or of the monotonic clock, whichever
// is greater, because a process may be frozen between two requests.
func MaxAge(d time.Duration) Option {
	return func(o *options) error {
		if d <= 0 {
			return invalid("MaxAge is %v; it must be above 0", d)
		}
		o.maxAge = d
		return nil
	}
}

// WithKeyDigest sets the secret of the limiter's keys. If the limiter has [limiter.WithKeyDigest], pass
// the same secret here; otherwise no override matches.
func WithKeyDigest(secret []byte) Option {
	return func(o *options) error {
		if len(secret) == 0 {
			return invalid("WithKeyDigest got no secret; pass that of the limiter")
		}
		o.secret = bytes.Clone(secret)
		return nil
	}
}

// OnError calls f with the error of each failed read, before the requests that wait for the read
// continue. If overrides of the limit are not valid, it also calls f, once after each read: see [Base].
// f runs in the goroutine of the read, so a panic ends the program. The error contains no key. The
// default is to log it to [log/slog.Default].
func OnError(f func(error)) Option {
	return func(o *options) error {
		if f == nil {
			return invalid("the function of OnError is nil; pass one, or leave the option out")
		}
		o.onError = f
		return nil
	}
}

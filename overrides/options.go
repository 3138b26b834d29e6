package overrides

import (
	"bytes"
	"time"
)

// Option changes what the function of [New] does. New rejects a nil Option.
type Option func(*options) error

// options are what the options set.
type options struct {
	maxAge  time.Duration
	secret  []byte
	onError func(error)
	now     func() instant // of tests
}

// MaxAge is how old the copy of the overrides may become before a request reads them again. It must be
// above 0. The default is 10 s. The age counts by the wall clock and by the monotonic clock, whichever
// says more, because processes may be frozen between two requests.
func MaxAge(d time.Duration) Option {
	return func(o *options) error {
		if d <= 0 {
			return invalid("MaxAge is %v; it must be above 0", d)
		}
		o.maxAge = d
		return nil
	}
}

// WithKeyDigest must have the same secret as [limiter.WithKeyDigest] of the limiter, if that has one.
func WithKeyDigest(secret []byte) Option {
	return func(o *options) error {
		if len(secret) == 0 {
			return invalid("WithKeyDigest got no secret; pass that of the limiter")
		}
		o.secret = bytes.Clone(secret)
		return nil
	}
}

// OnError tells the function to call f with the error of each read that failed, in the goroutine of
// the request. The error contains no key. Without OnError such errors are logged by [log/slog.Default].
func OnError(f func(error)) Option {
	return func(o *options) error {
		if f == nil {
			return invalid("the function of OnError is nil; pass one, or leave the option out")
		}
		o.onError = f
		return nil
	}
}

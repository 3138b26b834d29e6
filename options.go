package limiter

import (
	"bytes"
	"time"
)

// Option changes how a [Limiter] works. An option that is nil or out of range is
// an error of [New].
type Option func(*options) error

type options struct {
	maxWait time.Duration
	clock   func() time.Time
	secret  []byte
}

// WithClock tells the [Limiter] to pass the time that now returns with every
// operation, in place of the store's own clock. It is for tests and for replays
// of past traffic: all processes that share a key must share the clock, and no
// two machines' clocks agree. Times must lie between 1970 and 2079. It does not
// change how long [Limiter.Wait] sleeps. The default is the store's clock.
func WithClock(now func() time.Time) Option {
	return func(o *options) error {
		if now == nil {
			return invalid("WithClock got nil; pass a function such as time.Now, or leave the option out")
		}
		o.clock = now
		return nil
	}
}

// WithMaxWait tells [Limiter.Wait] and [Limiter.WaitN] how long they may wait at
// most: 0 to [MaxReserve]. The default is MaxReserve.
func WithMaxWait(d time.Duration) Option {
	return func(o *options) error {
		if err := checkMaxWait(d); err != nil {
			return err
		}
		o.maxWait = d
		return nil
	}
}

// WithKeyDigest tells the [Limiter] to store HMAC-SHA-256(secret, key) in place
// of the key, for those who must keep no personal data: addresses and e-mail
// addresses can be found again from a plain hash by trying them all. All
// processes that share keys must share the secret; a new secret is a new state
// for every key. By default keys are stored as they are.
func WithKeyDigest(secret []byte) Option {
	return func(o *options) error {
		if len(secret) == 0 {
			return invalid("WithKeyDigest got no secret; pass 32 random bytes that all processes share")
		}
		o.secret = bytes.Clone(secret)
		return nil
	}
}

func checkMaxWait(d time.Duration) error {
	if d < 0 || d > MaxReserve {
		return invalid("the longest wait is %v; it must be 0 to %v", d, MaxReserve)
	}
	return nil
}

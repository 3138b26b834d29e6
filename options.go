package limiter

import (
	"bytes"
	"context"
	"time"
)

// Option changes how a [Limiter] works. An option that is nil or out of range is
// an error of [New].
type Option func(*options) error

type options struct {
	maxWait  time.Duration
	timeout  time.Duration
	fail     failurePolicy
	fallback Store // of failLocal
	observer Observer
	clock    func() time.Time
	secret   []byte
	denySize int
	denyAge  time.Duration
}

// DefaultTimeout is the time limit of an operation without [WithTimeout]: far more
// than a database that is well needs, little enough to stand in front of a request.
const DefaultTimeout = 250 * time.Millisecond

// WithTimeout tells the [Limiter] how long a store may take for an operation, once
// it has a connection to its database; making one has a limit of its own, 3 s. The
// default is [DefaultTimeout].
//
// It is for the store to keep: those of this module do. If the context has a deadline, both limits end before it: 100 ms, or half of the
// time that is left if that is less, so that the answer of the failure policy comes
// while it is still of use, in the last second of a Lambda invocation, say. An
// operation that took too long fails with [ErrNotApplied] or [ErrOutcomeUnknown],
// and its error matches [context.DeadlineExceeded]; where the deadline was less than
// 200 ms away, which a client may have chosen, with [ErrCanceled]. On a connection or transaction
// of the caller's, which it could not use any more after that, there is no limit but
// the context's.
func WithTimeout(d time.Duration) Option {
	return func(o *options) error {
		if d <= 0 {
			return invalid("the timeout is %v; it must be above 0, and %v is the default", d, DefaultTimeout)
		}
		o.timeout = d
		return nil
	}
}

// Observer is told of each decision when it has been made, for logs and metrics. It
// runs in the caller's goroutine, many at a time, and should not block. It must not
// change the Result.
type Observer func(ctx context.Context, d Decision)

// Decision is what an [Observer] is told. It holds no key.
type Decision struct {
	// Limiter is the limiter's name.
	Limiter string
	// Cost is what was asked for; 0 for [Limiter.Peek].
	Cost int64
	// Result is what the caller gets.
	Result Result
	// Err is why the store made no decision, or nil if it made one. With
	// [FailOpen] and [FailLocal] the caller does not get it.
	Err error
	// Duration is how long it took.
	Duration time.Duration
}

// WithObserver tells the [Limiter] to call o with each decision of its store or its
// deny cache, and each that the store failed to make. The default is nobody, which
// costs nothing.
func WithObserver(o Observer) Option {
	return func(opts *options) error {
		if o == nil {
			return invalid("the observer is nil; pass a function, or leave the option out")
		}
		opts.observer = o
		return nil
	}
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
// processes that share keys must share the secret. With a new secret the counts of
// all keys begin anew, as if none had been used: each can be used up once more, and
// while processes with both are running, by either. The rows of before are not found
// again, and go with a sweep. By default keys are stored as they are.
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

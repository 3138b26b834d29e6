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

// DefaultTimeout is the time limit of an operation without [WithTimeout]: far more than a
// healthy database needs, and short enough to stand in front of a request.
const DefaultTimeout = 250 * time.Millisecond

// WithTimeout sets how long a store may take for an operation, from when it has a
// connection to its database. Making a connection has a limit of its own, 3 s. The
// default is [DefaultTimeout]. The stores of this module keep these limits.
//
// Operations of one process wait for each other, and share statements. An operation that
// waited while the store answered others has d again when it is sent, so that a slow store
// does not fail for many callers if it does not for one.
//
// An operation that had its full time and did not finish fails with [ErrNotApplied] or
// [ErrOutcomeUnknown]. That is a failure of the store, which the failure policy answers.
// So is a connection that was not made within d.
//
// If the context has a deadline, an operation ends 100 ms before it, or after half of the
// time left if that is earlier, so that the caller can still use the answer. If this
// leaves the operation less than d, and it does not finish, the error is [ErrCanceled]; it
// also matches [ErrOutcomeUnknown] if the operation may have been carried out. No failure
// policy answers then, because a client may have chosen the deadline, as gRPC clients do.
// Where deadlines are your own and a failure policy must answer, set d at least 100 ms
// below the shortest. In AWS Lambda that means: at least 100 ms below what is left of the
// invocation when it asks the limiter.
//
// Both kinds of error match [context.DeadlineExceeded]. On a connection or transaction of
// the caller's there is no limit but the context's, because cutting a statement off costs
// the connection.
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

// WithClock tells the [Limiter] to pass the time that now returns with every operation,
// instead of the store's own clock. It is for tests and for replays of past traffic. All
// processes that share a key must share the clock, and no two machines' clocks agree.
// Times must lie between 1970 and 2079. It does not change how long [Limiter.Wait] sleeps.
// The default is the store's clock.
//
// Do not run Sweep on a store while a clock more than [SweepGrace] behind the store's is
// in use: Sweep goes by the store's own clock, and deletes rows that still count by the
// other one. Such keys then start as if never used.
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

package limiter

import (
	"bytes"
	"context"
	"time"
)

// Option changes how a [Limiter] works. [New] rejects an option that is nil or has a value out of
// range.
type Option func(*options) error

type options struct {
	maxWait   time.Duration
	timeout   time.Duration
	fail      failurePolicy
	fallback  Store // of failLocal
	policyFor func(ctx context.Context, key string) (Policy, error)
	observer  Observer
	clock     func() time.Time
	secret    []byte
	denySize  int
	denyAge   time.Duration
}

// DefaultTimeout is the time limit of an operation without [WithTimeout].
const DefaultTimeout = 250 * time.Millisecond

// WithTimeout sets how long a store may take for an operation, counted from when it has a
// connection to its database. Connecting has its own limit of 3 s. The default is [DefaultTimeout].
// The stores of this module keep these limits.
//
// Operations of one process wait for each other and share statements. Time in that queue, or for a free
// connection, does not count while the store carries out others: the operation gets the full d when it is
// sent. So a store that is fast enough for one caller does not fail for many.
// [AllowAll] waits for its keys one after another, and gets the full d again for each of them.
//
// If an operation does not finish in time, it fails with [ErrNotApplied] or [ErrOutcomeUnknown].
// That is a failure of the store, and the failure policy applies, unless the error also matches
// [ErrKeyBusy]. The same holds for a connection that is not made in time.
//
// If the context has a deadline, an operation ends 100 ms before it, or halfway if less than 200 ms are left, so that
// the caller can still use the result. If it is sent late, it gets half of the time after that end, at least
// 25 ms. If the end leaves less than d, and the operation does not finish, the error is [ErrCanceled]. It also matches
// [ErrOutcomeUnknown] if the operation may have been carried out. No failure policy applies then,
// because a client may have chosen the deadline, as gRPC clients do.
//
// A limit below 50 ms may be less than a healthy store needs. So such a timeout does not count as an
// outage, which would make other limiters of the store fail. A statement that was sent may continue
// for up to 100 ms after the caller has its result, because cutting it off costs the connection. A
// caller of [AllowAll] waits for its statement for up to 25 ms.
//
// If you set the deadlines yourself and a failure policy must apply, set d at least 100 ms below
// the shortest one. In AWS Lambda, set d at least 100 ms below the time that is left of the
// invocation.
//
// A timeout matches [context.DeadlineExceeded], unless an [AllowAll] is busy. On a connection or transaction of the
// caller, WithTimeout has no effect, because cutting a statement off costs the connection. Give the
// context a deadline there.
func WithTimeout(d time.Duration) Option {
	return func(o *options) error {
		if d <= 0 {
			return invalid("the timeout is %v; it must be above 0, and %v is the default", d, DefaultTimeout)
		}
		o.timeout = d
		return nil
	}
}

// Observer is a function that the [Limiter] calls after each operation, for logs and metrics. It
// runs in the caller's goroutine, concurrently with other calls, and should not block. It must not
// change the Result.
type Observer func(ctx context.Context, d Decision)

// Decision is what an [Observer] gets. It contains no key.
type Decision struct {
	// Limiter is the limiter's name.
	Limiter string
	// Op is what the Limiter asked for. It is [OpTake] for [Limiter.Allow], [Limiter.Reserve],
	// [Limiter.Wait] and each claim of [AllowAll], and [OpLook] for a request of cost 0.
	Op OpKind
	// Cost is the cost of the request, or what a refund or cancel was to give back. It is 0 for a reset
	// or a block, and 1 for an operation on a lease or a [Limiter.Charge] of 0, which is a look.
	Cost int64
	// MaxWait is how far ahead an [OpTake] could book.
	MaxWait time.Duration
	// Result is what the caller gets. For a refund, cancel, reset, block, release or extend it has only
	// Source, and Allowed, which is true unless Err is set.
	Result Result
	// Changed reports whether a refund, cancel, reset, block, release or extend changed anything. A block
	// always does.
	Changed bool
	// Err is why the store did not carry out the operation, or nil if it did. With [FailOpen] and
	// [FailLocal] the caller does not get this error.
	Err error
	// Duration is how long the operation took.
	Duration time.Duration
}

// WithObserver tells the [Limiter] to call o after each operation that it sends to its store, also if
// that fails, and after each refusal by its deny cache. Calls that send nothing are not observed: one
// with a wrong argument or after the end of its context, and a refund of nothing. The default is no
// observer.
func WithObserver(o Observer) Option {
	return func(opts *options) error {
		if o == nil {
			return invalid("the observer is nil; pass a function, or leave the option out")
		}
		opts.observer = o
		return nil
	}
}

// WithClock tells the [Limiter] to use the time that now returns, instead of the store's clock. Use
// it for tests and for replays of past traffic only: all processes that share a key must share the
// clock, and the clocks of two machines never agree. Times must be between 1970 and 2079. WithClock
// does not change how long [Limiter.Wait] sleeps. The default is the store's clock.
//
// Do not run Sweep on a store while a clock is in use that is more than [SweepGrace] behind the
// store's. Sweep goes by the store's clock and would delete rows that still count. Their keys would
// start unused.
func WithClock(now func() time.Time) Option {
	return func(o *options) error {
		if now == nil {
			return invalid("WithClock got nil; pass a function such as time.Now, or leave the option out")
		}
		o.clock = now
		return nil
	}
}

// WithMaxWait limits how long [Limiter.Wait] and [Limiter.WaitN] may wait: 0 to [MaxReserve]. The
// default is MaxReserve.
func WithMaxWait(d time.Duration) Option {
	return func(o *options) error {
		if err := checkMaxWait(d); err != nil {
			return err
		}
		o.maxWait = d
		return nil
	}
}

// WithKeyDigest tells the [Limiter] to store HMAC-SHA-256(secret, key) instead of the key. Use it
// if you must not store personal data. A plain hash is not enough, because addresses and e-mail
// addresses can be found again by trying all of them. All processes that share keys must share the
// secret. The default is to store keys as they are.
//
// With a new secret, all keys start unused. While processes with both secrets run, a client can use
// up both limits. Sweep deletes the old rows.
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

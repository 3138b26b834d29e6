package limiter

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"time"
)

// Concurrency limits how many requests of a key are in flight at a time, over all processes that share the
// store and the name. Each request holds one place, by a [Lease]. The lease ends when it is released or, by
// the store's clock, after [InFlight].Hold. Processes send no heartbeats.
//
//	lease, err := c.TryAcquire(ctx, customer)
//	defer lease.Release(context.WithoutCancel(ctx))
//	if err != nil || !lease.Allowed {
//		return // refused
//	}
//
// A refused request does not wait, and there is no order among callers. They should retry after a random
// time. To limit rates as well, acquire a lease first, then call [Limiter.AllowN], and release the lease if
// AllowN refuses. A release is exact; a refund is not.
//
// Make a Concurrency with [NewConcurrency]; the zero Concurrency is not valid. A Concurrency is safe for
// concurrent use.
type Concurrency struct{ limiter *Limiter }

// NewConcurrency returns a Concurrency for policy on store. It does no I/O. Names are those of [New]: a
// Concurrency and a [Limiter] of one name do not share state.
//
// The options are [WithTimeout], [WithObserver], [WithKeyDigest], [WithClock], [WithPolicyFor], whose
// function must return an InFlight, and a failure policy. With [FailOpen] a request passes without a place.
// With [FailLocal] it takes a place of the fallback. [WithDenyCache] and [WithMaxWait] are errors.
//
// The error matches [ErrInvalid] and says what to fix. A store on the caller's transaction is an error: see
// [Provisional]. If the store does not support leases, TryAcquire fails with [errors.ErrUnsupported].
func NewConcurrency(store Store, name string, policy InFlight, opts ...Option) (*Concurrency, error) {
	l, err := newLimiter(store, name, policy, opts)
	switch {
	case err != nil:
		return nil, err
	case l.denySize != 0:
		return nil, invalid("a Concurrency has no deny cache, because a place may be free at any time; leave WithDenyCache out")
	case l.maxWait != unset:
		return nil, invalid("a Concurrency does not wait; leave WithMaxWait out")
	case provisional(store) || l.fail == failLocal && provisional(l.fallback):
		return nil, invalid("the store of a Concurrency must not be a transaction of the caller; pass a store on a pool")
	}
	return &Concurrency{l}, nil
}

// Name returns the name that was passed to [NewConcurrency].
func (c *Concurrency) Name() string { return c.limiter.name }

// Policy returns the policy that was passed to [NewConcurrency]. With [WithPolicyFor] another one may decide:
// see [Result].Policy.
func (c *Concurrency) Policy() InFlight { return c.limiter.policy.(InFlight) }

// TryAcquire takes a place of the key for the policy's Hold, if one is free. It does not wait. A refusal is a
// Lease with Allowed false and no error, and writes nothing.
//
// The Lease is never nil, also with an error. The errors are those of [Limiter.AllowN]. If the store leaves
// the outcome unknown, TryAcquire also sends one release. It waits for it for up to [WithTimeout], at most 1 s,
// even after ctx has ended. The same holds for the fallback of [FailLocal]. If the release fails or overtakes
// the acquire, the place stays taken until the lease ends, or until a [Lease.Release] that reaches the store
// after the acquire.
func (c *Concurrency) TryAcquire(ctx context.Context, key string) (*Lease, error) {
	return c.acquire(ctx, key, 0)
}

// TryAcquireFor is [Concurrency.TryAcquire] with a lease of d instead of the policy's Hold. Use it if the
// request has a deadline. The error also matches [ErrInvalid] if d is not 1 ms to [MaxHold].
func (c *Concurrency) TryAcquireFor(ctx context.Context, key string, d time.Duration) (*Lease, error) {
	if err := checkHold("the time of the lease", d); err != nil {
		return &Lease{Result: noDecision}, err
	}
	return c.acquire(ctx, key, d)
}

// acquire takes a place for d, or for the policy's Hold if d is 0.
func (c *Concurrency) acquire(ctx context.Context, key string, d time.Duration) (*Lease, error) {
	lease := &Lease{Result: noDecision, limiter: c.limiter}
	var b booking
	if err := c.limiter.op(ctx, &b.op, OpAcquire, key, 1); err != nil {
		return lease, err
	}
	if b.op.Hold = d; d == 0 {
		b.op.Hold = b.op.Policy.(InFlight).Hold
	}
	b.op.ID = newLeaseID()
	err := c.limiter.decide(ctx, &b, &lease.Result)
	lease.begin(&b)
	return lease, err
}

// newLeaseID returns a random number from 1 to 2^63 - 1. It comes from the operating system, because two
// processes that start from one memory snapshot must not get the same number.
func newLeaseID() (id int64) {
	for id == 0 {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		id = int64(binary.BigEndian.Uint64(random[:]) >> 1)
	}
	return id
}

// Peek reports what [Concurrency.TryAcquire] would answer, and takes nothing. The errors are those of
// [Limiter.Peek].
func (c *Concurrency) Peek(ctx context.Context, key string) (Result, error) {
	return c.limiter.Peek(ctx, key)
}

// Reset frees all places of a key, also those in use. The requests that held them go on, and their releases
// change nothing. The errors are those of [Limiter.Reset].
func (c *Concurrency) Reset(ctx context.Context, key string) error { return c.limiter.Reset(ctx, key) }

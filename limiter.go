package limiter

import (
	"context"
	"fmt"
	"time"
)

// Limiter applies one policy to any number of keys. A [Store] keeps the state of the keys.
// Processes share this state if they use the same store, name and policy. If the policy of a name
// changes, each key keeps what it has left.
//
// Use [Limiter.Allow] to refuse requests, [Limiter.Wait] to delay them, and [Limiter.Reserve] to
// learn how long to wait.
//
// Make a Limiter with [New]; the zero Limiter is not valid. A Limiter is safe for concurrent use.
type Limiter struct {
	store  Store
	name   string
	policy Policy
	keys   keyer
	known  func(sum []byte) string // makes a stored key of a hash
	deny   *denyCache
	options
}

// New returns a Limiter for policy on store. It does no I/O.
//
// The name distinguishes the limiters of one store. It has 1 to 64 characters of A-Z a-z 0-9 . _ :
// / and -. The error matches [ErrInvalid] and says what to fix.
func New(store Store, name string, policy Policy, opts ...Option) (*Limiter, error) {
	if isNil(store) {
		return nil, invalid("the store is nil (%T); pass memory.New(), or what sqlite.Open or postgres.New returned", store)
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := checkPolicy(policy); err != nil {
		return nil, err
	}
	l := &Limiter{store: store, name: name, policy: policy, options: options{maxWait: MaxReserve, timeout: DefaultTimeout}}
	for _, opt := range opts {
		if opt == nil {
			return nil, invalid("an option is nil; leave it out")
		}
		if err := opt(&l.options); err != nil {
			return nil, err
		}
	}
	l.keys.secret, l.known = l.secret, asString
	if l.deny = l.newDenyCache(); l.deny != nil {
		l.known = l.deny.keys.known
	}
	return l, nil
}

// Name returns the name that was passed to [New].
func (l *Limiter) Name() string { return l.name }

// Policy returns the policy that was passed to [New].
func (l *Limiter) Policy() Policy { return l.policy }

// Allow is shorthand for AllowN(ctx, key, 1).
func (l *Limiter) Allow(ctx context.Context, key string) (Result, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN reports whether a request of cost n may pass now, and charges n to the key if it may. A
// refusal is a [Result], not an error, and charges nothing (except with
// [FixedWindow].CountRejected). If n is 0, AllowN is [Limiter.Peek].
//
// The error is [ErrExceedsCapacity] if n is more than the policy ever admits at once, and
// [ErrInvalid] if n is negative or the key is empty. Otherwise the error is the store's; [FailOpen]
// says which of those can pass. The Result that comes with an error is a refusal with
// [SourcePolicy].
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res Result, err error) {
	if n == 0 {
		return l.Peek(ctx, key)
	}
	var b booking
	err = l.take(ctx, key, n, 0, &b, &res)
	return res, err
}

// Peek returns the state of a key without charging it or writing anything. Allowed and RetryAfter
// are what [Limiter.Allow] would return now. The errors are those of [Limiter.AllowN].
func (l *Limiter) Peek(ctx context.Context, key string) (res Result, err error) {
	var b booking
	if err := l.op(&b.op, OpLook, key, 0); err != nil {
		return undecided, err
	}
	err = l.decide(ctx, &b, &res)
	return res, err
}

// undecided is the Result that comes with an error.
var undecided = Result{Source: SourcePolicy}

// take carries out or books a request of cost n, which is not 0. It fills in b and res. These are
// pointers, here and below, because copying large structs costs most of a decision in memory.
func (l *Limiter) take(ctx context.Context, key string, n int64, maxWait time.Duration, b *booking, res *Result) error {
	*res = undecided
	if err := l.op(&b.op, OpTake, key, n); err != nil {
		return err
	}
	if n < 0 {
		return invalid("the cost is %d; pass at least 0", n)
	}
	if n > l.policy.limit() {
		return fmt.Errorf("%w: limiter %q: the cost is %d; the policy admits at most %d", ErrExceedsCapacity, l.name, n, l.policy.limit())
	}
	b.op.MaxWait = maxWait
	return l.decide(ctx, b, res)
}

// decide asks the deny cache or the store for a decision on b.op. If the store fails, it applies
// the failure policy. Then it calls the observer.
func (l *Limiter) decide(ctx context.Context, b *booking, res *Result) (err error) {
	var begin time.Time
	if l.observer != nil {
		begin = time.Now()
	}
	cause := l.ask(ctx, b, res)
	if cause != nil {
		err, cause = l.failed(ctx, b, res, cause)
	}
	if l.observer != nil {
		l.observer(ctx, Decision{Limiter: l.name, Cost: b.op.Cost, Result: *res, Err: cause, Duration: time.Since(begin)})
	}
	return err
}

// ask asks the deny cache, and otherwise the store, for a decision on b.op.
func (l *Limiter) ask(ctx context.Context, b *booking, res *Result) error {
	if l.deny != nil && b.op.Kind == OpTake {
		return l.deny.ask(ctx, l, b, res)
	}
	if err := l.do(ctx, &b.op, &b.state); err != nil {
		return err
	}
	answer(&b.op, &b.state, res)
	return nil
}

// op makes op an operation on key, at the time of the Limiter's clock if it has one.
func (l *Limiter) op(op *Op, kind OpKind, key string, n int64) (err error) {
	op.Kind, op.Name, op.Policy, op.Cost, op.Timeout = kind, l.name, l.policy, n, l.timeout
	if op.Key, err = l.keys.stored(key, l.known); err != nil {
		return err
	}
	if l.clock != nil {
		op.At, err = checkClock(l.clock())
	}
	return err
}

// do sends op to the Limiter's store and fills in s.
func (l *Limiter) do(ctx context.Context, op *Op, s *State) error {
	return l.doOn(ctx, l.store, op, s)
}

// doOn sends op to store and fills in s. It sends nothing if ctx has ended.
func (l *Limiter) doOn(ctx context.Context, store Store, op *Op, s *State) (err error) {
	if err := served(ctx); err != nil {
		return err
	}
	if *s, err = store.Do(ctx, *op); err != nil {
		*s = State{}
		return fmt.Errorf("limiter %q: %w", l.name, err)
	}
	return nil
}

// served returns an error if ctx has ended.
func served(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrCanceled, err)
	}
	return nil
}

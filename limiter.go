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
	keys   *keyer
	deny   *denyCache
	options
}

// New returns a Limiter for policy on store. It does no I/O.
//
// The name distinguishes the limiters of one store. It has 1 to 64 characters of A-Z a-z 0-9 . _ :
// / and -. The error matches [ErrInvalid] and says what to fix.
func New(store Store, name string, policy Policy, opts ...Option) (*Limiter, error) {
	if err := checkRate(policy); err != nil {
		return nil, err
	}
	l, err := newLimiter(store, name, policy, opts)
	if err != nil {
		return nil, err
	}
	if l.maxWait == unset {
		l.maxWait = MaxReserve
	}
	l.deny = l.newDenyCache()
	return l, nil
}

// unset is the value of a duration that no option has set.
const unset = -1

// newLimiter returns a Limiter for any policy, without a deny cache.
func newLimiter(store Store, name string, policy Policy, opts []Option) (*Limiter, error) {
	if isNil(store) {
		return nil, invalid("the store is nil (%T); pass memory.New(), or what sqlite.Open or postgres.New returned", store)
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	policy, err := checkPolicy(policy)
	if err != nil {
		return nil, err
	}
	l := &Limiter{store: store, name: name, policy: policy, options: options{maxWait: unset, timeout: DefaultTimeout}}
	for _, opt := range opts {
		if opt == nil {
			return nil, invalid("an option is nil; leave it out")
		}
		if err := opt(&l.options); err != nil {
			return nil, err
		}
	}
	l.keys = &keyer{secret: l.secret}
	return l, nil
}

// On returns a Limiter with the name, policy and options of l on another store: for example, one on
// the transaction of a request. Its deny cache is empty, and it has none on a [Provisional] store.
// On does no I/O and no more than 2 allocations. If store is nil, all operations of the returned
// Limiter fail with [ErrInvalid].
func (l *Limiter) On(store Store) *Limiter {
	on := *l
	if on.store = store; isNil(store) {
		on.store = noStore{}
	}
	on.deny = on.newDenyCache()
	return &on
}

// noStore is the store of a Limiter that [Limiter.On] returned for none.
type noStore struct{}

func (noStore) Do(context.Context, Op) (State, error) {
	return State{}, invalid("the store that was passed to On is nil; pass what sqlite.Open or postgres.New returned")
}

// Name returns the name that was passed to [New].
func (l *Limiter) Name() string { return l.name }

// Policy returns the policy that was passed to [New]. With [WithPolicyFor] another one may decide: see
// [Result].Policy.
func (l *Limiter) Policy() Policy { return l.policy }

// Allow is shorthand for AllowN(ctx, key, 1).
func (l *Limiter) Allow(ctx context.Context, key string) (Result, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN reports whether a request of cost n may pass now, and charges n to the key if it may. A
// refusal is a [Result], not an error, and charges nothing (except with
// [FixedWindow].CountRejected). A request of cost 0 charges nothing, and passes unless the key is in
// debt, blocked, booked beyond now or above its limit: AllowN is [Limiter.PeekN] then. A key is above
// its limit because of CountRejected, or because the limit of a window was lowered.
//
// The error is [ErrExceedsCapacity] if n is more than the policy ever admits at once, and
// [ErrInvalid] if n is negative or the key is empty. Otherwise the error is the store's; [FailOpen]
// says which of those can pass. The Result that comes with an error is a refusal with
// [SourcePolicy].
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res Result, err error) {
	if n == 0 {
		return l.PeekN(ctx, key, 0)
	}
	var b booking
	if err := l.op(ctx, &b.op, OpTake, key, n); err != nil {
		return noDecision, err
	}
	if err := l.checkCost(&b.op); err != nil {
		return noDecision, err
	}
	err = l.decide(ctx, &b, &res)
	return res, err
}

// AllowUpTo charges as many of n to the key as there is room for: [Result].Taken says how many. It
// charges none if there is no room for 1: this is a refusal, with the RetryAfter of a request of cost
// 1. Use it for jobs that can do a part of their work.
//
// The cost n may be more than the policy ever admits. The error is [ErrInvalid] if n is below 1. For
// a window with CountRejected it also matches [errors.ErrUnsupported]. Otherwise the errors are
// those of [Limiter.AllowN]. If [FailOpen] lets the request pass, Taken is n.
func (l *Limiter) AllowUpTo(ctx context.Context, key string, n int64) (res Result, err error) {
	var b booking
	if err := l.op(ctx, &b.op, OpTakeUpTo, key, n); err != nil {
		return noDecision, err
	}
	if n < 1 {
		return noDecision, invalid("the cost is %d; pass at least 1", n)
	}
	if err := checkNotCounting(&b.op); err != nil {
		return noDecision, err
	}
	err = l.decide(ctx, &b, &res)
	return res, err
}

// Peek is shorthand for PeekN(ctx, key, 1).
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	return l.PeekN(ctx, key, 1)
}

// PeekN returns the state of a key without charging it. Allowed and RetryAfter are what
// [Limiter.AllowN] would return now for a request of cost n, which may be 0. It writes nothing, but
// once after the key's policy changed, and once after the clock was stepped back if the request would
// be refused; then it needs the right to write. The errors are those of AllowN.
func (l *Limiter) PeekN(ctx context.Context, key string, n int64) (res Result, err error) {
	var b booking
	if err := l.op(ctx, &b.op, OpLook, key, n); err != nil {
		return noDecision, err
	}
	if err := l.checkCost(&b.op); err != nil {
		return noDecision, err
	}
	err = l.decide(ctx, &b, &res)
	return res, err
}

// noDecision is the Result that comes with an error.
var noDecision = Result{Source: SourcePolicy}

// checkCost returns an error if the policy never admits the cost of op.
func (l *Limiter) checkCost(op *Op) error {
	if op.Cost < 0 {
		return invalid("the cost is %d; pass at least 0", op.Cost)
	}
	if most := op.Policy.limit(); op.Cost > most {
		return fmt.Errorf("%w: limiter %q: the cost is %d; the policy admits at most %d", ErrExceedsCapacity, l.name, op.Cost, most)
	}
	return nil
}

// decide asks the deny cache or the store for a decision on b.op. If the store fails, it applies
// the failure policy. Then it calls the observer. It takes pointers, as the functions below do,
// because copying large structs costs most of a decision in memory.
func (l *Limiter) decide(ctx context.Context, b *booking, res *Result) (err error) {
	if err := checkContext(ctx); err != nil {
		*res = noDecision
		return err
	}
	var begin time.Time
	if l.observer != nil {
		begin = time.Now()
	}
	var cause error
	if l.deny != nil {
		cause = l.deny.ask(ctx, l, b, res)
	} else if cause = l.doOn(ctx, l.store, &b.op, &b.state); cause == nil {
		b.op.result(&b.state, res)
	}
	if cause != nil {
		b.unknown = l.withdraw(ctx, SourceStore, b, cause)
		err, cause = l.failed(ctx, b, res, cause)
	}
	if l.observer != nil {
		l.observe(ctx, b, res, cause, begin)
	}
	return err
}

// carryOut sends b.op, which no failure policy applies to, to the store or, if to is [SourceLocal], to the
// fallback. Then it calls the observer.
func (l *Limiter) carryOut(ctx context.Context, to Source, b *booking) (Result, error) {
	if err := checkContext(ctx); err != nil {
		return noDecision, err
	}
	store := l.store
	if to == SourceLocal {
		store = l.fallback
	}
	begin, res := time.Now(), noDecision
	err := l.doOn(ctx, store, &b.op, &b.state)
	switch {
	case err != nil:
	case b.op.Kind == OpCharge || b.op.Kind == OpLook:
		b.op.result(&b.state, &res)
	default:
		res = Result{Allowed: true, Source: to}
	}
	if l.observer != nil {
		l.observe(ctx, b, &res, err, begin)
	}
	return res, err
}

// observe tells the observer what came of b.op.
func (l *Limiter) observe(ctx context.Context, b *booking, res *Result, err error, begin time.Time) {
	d := Decision{Limiter: l.name, Op: b.op.Kind, Cost: b.op.Cost, Result: *res, Err: err, Duration: time.Since(begin)}
	switch d.Op {
	case OpTake:
		d.MaxWait = b.op.MaxWait
	case OpBlock:
		d.Cost, d.Changed = 0, b.state.Took
	case OpRefund, OpCancel, OpReset, OpRelease, OpExtend:
		d.Changed = b.state.Took
	}
	l.observer(ctx, d)
}

// op makes op an operation on key, by the policy for this request, and at the time of the Limiter's
// clock if it has one. A refund, cancel or reset needs only the kind of the Limiter's policy.
func (l *Limiter) op(ctx context.Context, op *Op, kind OpKind, key string, n int64) (err error) {
	op.Kind, op.Name, op.Policy, op.Cost, op.Timeout = kind, l.name, l.policy, n, l.timeout
	if op.Key, err = l.keys.stored(key, l.deny); err != nil {
		return err
	}
	if l.policyFor != nil && kind != OpRefund && kind != OpReset {
		if op.Policy, err = l.choosePolicy(ctx, key); err != nil {
			return err
		}
	}
	if l.clock != nil {
		op.At, err = checkClock(l.clock())
	}
	return err
}

// doOn sends op to store and fills in s.
func (l *Limiter) doOn(ctx context.Context, store Store, op *Op, s *State) (err error) {
	if *s, err = store.Do(ctx, *op); err != nil {
		*s = State{}
		return fmt.Errorf("limiter %q: %w", l.name, err)
	}
	return nil
}

// checkContext returns an error if ctx has ended.
func checkContext(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrCanceled, err)
	}
	return nil
}

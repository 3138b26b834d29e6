// Package limiter answers one question: may this caller do this now? It is made
// for code that keeps no memory between requests (AWS Lambda, Cloud Run, jobs):
// the state lives in the SQL database that the application already has.
//
//	store, err := postgres.New(pool) // or sqlite.Open("app.db")
//	...
//	logins, err := limiter.New(store, "login", limiter.TokenBucket{
//		Capacity: 5, Refill: 1, Interval: time.Minute,
//	})
//	...
//	res, err := logins.Allow(ctx, email)
//	switch {
//	case err != nil: // no decision could be made
//	case !res.Allowed: // come back after res.RetryAfter
//	}
//
// # Policies
//
// A [TokenBucket] allows bursts and then a steady rate; it is the one to take
// unless a contract says "n per day". A [FixedWindow] counts per aligned window.
//
// # Decisions
//
// [Limiter.Allow] and [Limiter.AllowN] decide at once; [Limiter.Peek] looks
// without taking. [Limiter.Reserve] books a turn ahead, and [Limiter.Wait] sleeps
// until it. Each is one round trip to the database, by one atomic statement. It takes
// more only if a policy has just changed, a clock was stepped back, other processes
// change the same key, or different operations wait for the key. Concurrent callers, in
// any number of processes, admit exactly what the policy admits.
//
// # Tables
//
// The stores in SQL create no tables: run migrations.Up, or the goose command
// line, when you deploy. Without tables every decision is [ErrMisconfigured].
//
// # Clock
//
// The store's clock decides: in PostgreSQL that of the database, so the clocks
// of application machines do not matter. A clock that is stepped back grants
// nothing, and locks no key out for longer than it owed or its window lasts.
//
// # Failure
//
// A store that does not answer within [WithTimeout] has failed. Then [FailClosed],
// the default, refuses, [FailOpen] lets pass, and [FailLocal] asks another store. A
// database that keeps failing is asked only now and then, so that it costs microseconds.
// The classes of errors say whether a request was charged; see [ErrNotApplied] and
// [ErrOutcomeUnknown]. [WithObserver] sees every decision, and every failure.
//
// # Serverless
//
// A Limiter is a few words of memory. Nothing runs in the background, so nothing
// is lost when a process is frozen or killed between two requests.
package limiter

import (
	"context"
	"fmt"
	"time"
)

// Limiter applies one policy to any number of keys, whose state a [Store] keeps.
// Processes that use the same store, name and policy share that state; another
// name is another state. If the policy of a name changes, what each key has left
// carries over.
//
// Use [Limiter.Allow] to refuse what is too much, [Limiter.Wait] to slow it down,
// and [Limiter.Reserve] to be told how long to wait. The zero Limiter is not
// valid; make one with [New]. A Limiter is safe for concurrent use.
type Limiter struct {
	store  Store
	name   string
	policy Policy
	keys   keyer
	known  func(sum []byte) string // makes a stored key of a hash
	deny   *denyCache
	options
}

// New returns a Limiter. It does no I/O. The name tells limiters on one store
// apart; it has 1 to 64 of the characters A-Z a-z 0-9 . _ : / and -. The error
// matches [ErrInvalid] and says what to fix.
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

// Name returns the name that New was given.
func (l *Limiter) Name() string { return l.name }

// Policy returns the policy that New was given.
func (l *Limiter) Policy() Policy { return l.policy }

// Allow is shorthand for AllowN(ctx, key, 1).
func (l *Limiter) Allow(ctx context.Context, key string) (Result, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN reports whether a request that costs n may pass now, and charges it if
// so. A refusal is a Result, not an error, and charges nothing. AllowN of 0 is
// [Limiter.Peek].
//
// The error is [ErrExceedsCapacity] if the policy can never admit n at once, and
// [ErrInvalid] if n is negative or the key is empty. Otherwise it is one of the
// store's: see the classes of errors, and [FailOpen] for which of them can pass. The
// Result that comes with an error is a refusal with [SourcePolicy].
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res Result, err error) {
	if n == 0 {
		return l.Peek(ctx, key)
	}
	var b booking
	err = l.take(ctx, key, n, 0, &b, &res)
	return res, err
}

// Peek returns the state of a key and writes nothing. Allowed and RetryAfter are
// those that [Limiter.Allow] would have had. Its errors are those of AllowN.
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

// take carries out or books a request of cost n, which is not 0. It fills in b and
// res, here as below by pointers: copies of large structs, made in the instant that
// they were written, are what a decision in memory spends most of its time on.
func (l *Limiter) take(ctx context.Context, key string, n int64, maxWait time.Duration, b *booking, res *Result) error {
	*res = undecided
	if err := l.op(&b.op, OpTake, key, n); err != nil {
		return err
	}
	if n < 0 {
		return invalid("the cost is %d; pass at least 0", n)
	}
	if n > l.policy.limit() {
		return fmt.Errorf("%w: limiter %q: the cost is %d of at most %d", ErrExceedsCapacity, l.name, n, l.policy.limit())
	}
	b.op.MaxWait = maxWait
	return l.decide(ctx, b, res)
}

// decide has the deny cache decide b.op, or the store, or the failure policy, and
// tells the observer.
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

// ask has the deny cache decide b.op, or otherwise the store.
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

// op makes op an operation on key at the time of the Limiter's clock.
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

// do sends op to the Limiter's store, which fills s in.
func (l *Limiter) do(ctx context.Context, op *Op, s *State) error {
	return l.doOn(ctx, l.store, op, s)
}

// doOn sends op to a store, which fills s in. It sends nothing if ctx has ended.
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

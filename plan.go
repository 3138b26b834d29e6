package limiter

import (
	"context"
	"fmt"
)

// WithPolicyFor tells the [Limiter] to ask f for the policy of each request: by plan, tenant or time
// of day. A nil Policy means the one that was passed to [New]. The policy must be of the same [PolicyKind] as
// that one, because the state of a bucket is not that of a window.
//
// The Limiter calls f once per decision, reservation, charge or block, with the key of the request,
// and never for a Refund, Reset or Cancel. f runs in the caller's goroutine and must be safe for
// concurrent use. It must be fast: its time does not count as time of the store. Package
// [github.com/sqlimit/limiter/overrides] reads the policies of single keys from a table.
//
// A change takes effect at the key's next request. The number of tokens that are left carries over,
// up to the new capacity, and debt beyond an empty bucket carries over as time. A window that is
// still running keeps its count: see [SlidingWindow] for its slices.
//
// If f returns an error, the request is refused with [ErrNoPolicy], and no failure policy applies.
// The error of f must not contain the key. A policy that is not valid, or of another kind, is
// [ErrInvalid].
func WithPolicyFor(f func(ctx context.Context, key string) (Policy, error)) Option {
	return func(o *options) error {
		if f == nil {
			return invalid("the function of WithPolicyFor is nil; pass one, or leave the option out")
		}
		o.policyFor = f
		return nil
	}
}

// choosePolicy returns the policy for a request with this key. It checks the policy each time, which
// costs less than remembering the policies that it has checked.
func (l *Limiter) choosePolicy(ctx context.Context, key string) (Policy, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	p, err := l.policyFor(ctx, key)
	if err != nil {
		if ended := checkContext(ctx); ended != nil {
			return nil, fmt.Errorf("%w: %w", ended, err)
		}
		return nil, fmt.Errorf("%w: limiter %q: %w", ErrNoPolicy, l.name, err)
	}
	if p == nil || p == l.policy {
		return l.policy, nil
	}
	if p, err = checkPolicy(p); err != nil {
		return nil, fmt.Errorf("limiter %q: the function of WithPolicyFor: %w", l.name, err)
	}
	if KindOf(p) != KindOf(l.policy) {
		return nil, invalid("limiter %q: the function of WithPolicyFor returned a %T, and New got a %T; return the same kind, or make another limiter", l.name, p, l.policy)
	}
	return p, nil
}

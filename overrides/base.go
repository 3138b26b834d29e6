package overrides

import (
	"context"
	"fmt"

	"github.com/sqlimit/limiter"
	rows "github.com/sqlimit/limiter/internal/override"
)

// Base sets the policy whose Limit an override of kind [KindLimit] replaces: a FixedWindow or a
// CalendarWindow, usually the policy of the limiter. An operator can then give one customer 2,000 this month
// without knowing when the customer's month ends.
//
// Without Base, or with a limit that the policy cannot have, requests of the key fail with
// [limiter.ErrInvalid], and [OnError] gets that error once after each read.
func Base(p limiter.Policy) Option {
	return func(o *options) error {
		l, err := limiter.New(nowhere{}, "base", p)
		if err != nil {
			return fmt.Errorf("overrides: Base: %w", err)
		}
		if rows.WithLimit(p, 1) == nil {
			return invalid("the policy of Base is a %T; pass a FixedWindow or a CalendarWindow", p)
		}
		o.base = l.Policy()
		return nil
	}
}

// withLimit returns base with another limit.
func withLimit(base limiter.Policy, limit int64) (limiter.Policy, error) {
	if base == nil {
		return nil, invalid("the table has an override of the limit alone, and New has no base for it; pass Base with the policy of the limiter")
	}
	p := rows.WithLimit(base, limit)
	if _, err := limiter.New(nowhere{}, "base", p); err != nil {
		return nil, fmt.Errorf("overrides: an override has the limit %d: %w", limit, err)
	}
	return p, nil
}

// nowhere is the store of a Limiter that only checks its policy.
type nowhere struct{}

func (nowhere) Do(context.Context, limiter.Op) (limiter.State, error) {
	return limiter.State{}, fmt.Errorf("overrides: %w", limiter.ErrNotApplied)
}

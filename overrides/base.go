package overrides

import (
	"fmt"

	"github.com/sqlimit/limiter"
	rows "github.com/sqlimit/limiter/internal/override"
)

// Base sets the policy whose Limit an override of kind [KindLimit] replaces: a window of any sort or an
// InFlight, usually the policy of the limiter. An operator can then give one customer 2,000 a month without
// repeating the calendar in the table. The override lasts until it expires or is removed.
//
// Without Base, or with a limit that the policy cannot have, requests of the key fail with
// [limiter.ErrInvalid], and [OnError] gets that error once after each read.
func Base(p limiter.Policy) Option {
	return func(o *options) error {
		var err error
		if o.base, err = rows.Check(p); err != nil {
			return fmt.Errorf("overrides: Base: %w", err)
		}
		if rows.WithLimit(p, 1) == nil {
			return invalid("the policy of Base is a %T; pass a window of any sort or an InFlight", p)
		}
		return nil
	}
}

// withLimit returns base with another limit.
func withLimit(base limiter.Policy, limit int64) (limiter.Policy, error) {
	if base == nil {
		return nil, invalid("the table has an override of the limit alone, and New has no base for it; pass Base with the policy of the limiter")
	}
	p := rows.WithLimit(base, limit)
	if _, err := rows.Check(p); err != nil {
		return nil, fmt.Errorf("overrides: an override has the limit %d: %w", limit, err)
	}
	return p, nil
}

package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/override"
)

// Overrides returns the overrides of the limiter with this name, in the order of their keys and at
// most limit of them. It leaves out those that have expired by the process's clock. Package
// [github.com/sqlimit/limiter/overrides] calls it.
//
// The error matches [limiter.ErrMisconfigured] if the table limiter_overrides is missing, and says
// what to do. If limit is below 1, it matches [limiter.ErrInvalid]. Overrides has no time limit of
// its own, so give ctx a deadline. It is safe for concurrent use.
func (s *Store) Overrides(ctx context.Context, name string, limit int) ([]limiter.Override, error) {
	if limit < 1 {
		return nil, invalid(fmt.Sprintf("the limit of Overrides is %d; it must be at least 1", limit))
	}
	list, err := s.readOverrides(ctx, name, int64(limit))
	if err != nil {
		return nil, fmt.Errorf("sqlite: overrides of limiter %q: %w", name, err)
	}
	return list, nil
}

func (s *Store) readOverrides(ctx context.Context, name string, limit int64) (list []limiter.Override, err error) {
	now, err := limiter.Op{}.Clock(s.now)
	if err != nil {
		return nil, err
	}
	reader, _, err := s.pools()
	if err != nil {
		return nil, err
	}
	err = attempt(ctx, func(ctx context.Context) error {
		list = nil
		return reader.query(ctx, "overrides", func(columns []driver.Value) error {
			o, err := overrideOf(columns)
			list = append(list, o)
			return err
		}, name, now, limit)
	})
	return list, err
}

// overrideOf returns the override of a row.
func overrideOf(columns []driver.Value) (limiter.Override, error) {
	var r override.Row
	key, _ := columns[0].([]byte)
	r.Key = string(key)
	r.Kind, _ = columns[1].(string)
	r.Note, _ = columns[2].(string)
	if err := scan(columns[3:], &r.Capacity, &r.Refill, &r.Period, &r.ExpiresAt); err != nil {
		return limiter.Override{}, err
	}
	return r.Override()
}

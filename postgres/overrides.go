package postgres

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/override"
)

// Overrides returns the overrides of the limiter with this name, in the order of their keys and at
// most limit of them. It leaves out those that have expired by the database's clock. Package
// [github.com/sqlimit/limiter/overrides] calls it.
//
// The error matches [limiter.ErrMisconfigured] if the table limiter_overrides is missing or the role
// may not read it, and says what to do. If limit is below 1, it matches [limiter.ErrInvalid].
// Overrides has no time limit of its own, so give ctx a deadline. It is safe for concurrent use.
func (s *Store) Overrides(ctx context.Context, name string, limit int) ([]limiter.Override, error) {
	if limit < 1 {
		return nil, invalid("the limit of Overrides is %d; it must be at least 1", limit)
	}
	var list []limiter.Override
	err := s.run(ctx, read, func(db DB) (err error) {
		list, err = s.readOverrides(ctx, db, name, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: overrides of limiter %q: %w", name, err)
	}
	return list, nil
}

func (s *Store) readOverrides(ctx context.Context, db DB, name string, limit int) ([]limiter.Override, error) {
	rows, err := db.Query(ctx, s.inSchema(s.text("overrides")), s.args([]any{name, int64(limit)})...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (limiter.Override, error) {
		var r override.Row
		var key string
		if err := row.Scan(&key, &r.Kind, &r.Capacity, &r.Refill, &r.Period, &r.Note, &r.ExpiresAt); err != nil {
			return limiter.Override{}, err
		}
		b, err := hex.DecodeString(key)
		if err != nil {
			return limiter.Override{}, err
		}
		r.Key = string(b)
		return r.Override()
	})
}

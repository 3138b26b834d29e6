package postgres

import (
	"context"

	"github.com/sqlimit/limiter"
)

// takeAsExpected carries out a single take by the hot statement. If the outcome can be foreseen,
// it first tries a cheaper statement. If that one decides, the outcome is the same.
func (s *Store) takeAsExpected(ctx context.Context, db DB, t table, op limiter.Op) (state limiter.State, decided bool, err error) {
	sql := t.statements()
	switch s.expect.of(op) {
	case granted:
		state, decided, err = t.hot(ctx, db, sql.grant, op)
	case refused:
		state, decided, err = s.stillRefused(ctx, db, t, op)
	}
	if err == nil && !decided {
		state, decided, err = t.hot(ctx, db, sql.take, op)
	}
	switch {
	case err == nil && decided:
		s.expect.keep(op, state, s.expect.now())
	case err == nil:
		s.expect.forget(op) // the row has another policy; expectations would be wrong each time
	}
	return state, decided, err
}

// stillRefused reads the row. It decides only if the row refuses op.
func (s *Store) stillRefused(ctx context.Context, db DB, t table, op limiter.Op) (state limiter.State, decided bool, err error) {
	r, found, err := t.read(ctx, db, op)
	if err != nil || !found {
		return limiter.State{}, false, s.readError(ctx, err)
	}
	next, state := r.apply(r.row, op)
	return state, next == r.row && !state.Took, nil
}

package postgres

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// hotTable is what differs between the single takes of the two tables.
type hotTable interface {
	// statements returns the hot statement and the grant alone.
	statements() (take, grant string)
	// hot runs one of them.
	hot(ctx context.Context, db DB, sql string, op limiter.Op) (s limiter.State, decided bool, err error)
	// read reads the row, if there is one, and the clock: in a plan of one node, which
	// that of Look, with its answer for no row, is not.
	read(ctx context.Context, db DB, op limiter.Op) (r sqlstore.Reading, found bool, err error)
}

// take carries out a single take on a connection of its own.
func (s *Store) take(ctx context.Context, t hotTable, op limiter.Op) (state limiter.State, decided bool, err error) {
	err = s.run(ctx, write, func(db DB) (err error) {
		state, decided, err = s.takeOn(ctx, db, t, op)
		return err
	})
	return state, decided, err
}

// takeOn carries out a single take by the hot statement. Where the outcome can be
// foreseen it tries first what costs less, and is the same if it turns out so.
func (s *Store) takeOn(ctx context.Context, db DB, t hotTable, op limiter.Op) (state limiter.State, decided bool, err error) {
	take, grant := t.statements()
	switch s.expect.of(op) {
	case granted:
		state, decided, err = t.hot(ctx, db, grant, op)
	case refused:
		state, decided, err = s.stillRefused(ctx, db, t, op)
	}
	if err == nil && !decided {
		state, decided, err = t.hot(ctx, db, take, op)
	}
	switch {
	case err == nil && decided:
		s.expect.keep(op, state, s.expect.now())
	case err == nil:
		s.expect.forget(op) // the row is another policy's, which would be foreseen wrongly again and again
	}
	return state, decided, err
}

// stillRefused reads the row and reports whether it refuses op; else it says nothing.
// An error is one of a read.
func (s *Store) stillRefused(ctx context.Context, db DB, t hotTable, op limiter.Op) (state limiter.State, decided bool, err error) {
	r, found, err := t.read(ctx, db, op)
	if err != nil || !found {
		return limiter.State{}, false, s.readError(ctx, err)
	}
	next, state := r.Apply(op)
	return state, next == r.Row && !state.Took, nil
}

// Package sqlstore is what the SQL stores share: the order in which an operation
// becomes statements (the hot statement, then the second look), and the sweep.
// The statements themselves are each store's own.
package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlimit/limiter"
)

// Table is one store's statements. Each is atomic by itself; a failed one returns
// an error of the limiter's classes.
type Table interface {
	// Take is the hot statement: one round trip that grants the take or refuses
	// it. It decides only if the row was written under op's policy by a clock
	// that is not ahead of its own; else decided is false and nothing was written.
	Take(ctx context.Context, op limiter.Op) (s limiter.State, decided bool, err error)
	// Look reads the row, the zero Row if there is none, and the clock at once.
	Look(ctx context.Context, op limiter.Op) (Reading, error)
	// Swap replaces the row from, which is the zero Row if there was none, by to
	// if it has not changed, and reports whether it did.
	Swap(ctx context.Context, op limiter.Op, from, to limiter.Row) (bool, error)
	// Change carries out a refund, cancel or reset and reports whether it found
	// something to give back.
	Change(ctx context.Context, op limiter.Op) (bool, error)
}

// Reading is a row and the clock, read in one statement.
type Reading struct {
	Row  limiter.Row
	Now  int64
	Tick int64
}

// apply is op.Apply on what was read.
func (r Reading) apply(op limiter.Op) (limiter.Row, limiter.State) {
	next, s := op.Apply(r.Row, r.Now)
	s.Tick = r.Tick
	return next, s
}

// Do carries out op by t's statements.
func Do(ctx context.Context, t Table, op limiter.Op) (limiter.State, error) {
	switch op.Kind {
	case limiter.OpTake:
		return take(ctx, t, op)
	case limiter.OpLook:
		r, err := t.Look(ctx, op)
		if err != nil {
			return limiter.State{}, err
		}
		_, s := r.apply(op)
		return s, nil
	case limiter.OpRefund, limiter.OpCancel, limiter.OpReset:
		took, err := t.Change(ctx, op)
		return limiter.State{Took: took}, err
	}
	return limiter.State{}, fmt.Errorf("operation %d: %w", op.Kind, errors.ErrUnsupported)
}

// tries bounds the second look: a take that lost its row to others three times
// in a row is refused, and may come back after a microsecond.
const tries = 3

// take runs the hot statement and, where that cannot decide, the second look:
// row and clock are read once more, [limiter.Op.Apply] decides on them, and what
// it writes is written by compare-and-set. Whoever loses that starts again with
// the hot statement, because what won may have brought the row under op's policy,
// where a row lock decides and no race is lost.
func take(ctx context.Context, t Table, op limiter.Op) (limiter.State, error) {
	var last Reading
	for range tries {
		s, decided, err := t.Take(ctx, op)
		if err != nil || decided {
			return s, err
		}
		if last, err = t.Look(ctx, op); err != nil {
			return limiter.State{}, err
		}
		next, s := last.apply(op)
		if next == last.Row {
			return s, nil
		}
		swapped, err := t.Swap(ctx, op, last.Row, next)
		if err != nil {
			return limiter.State{}, err
		}
		if swapped {
			return s, nil
		}
	}
	look := op
	look.Kind = limiter.OpLook
	_, s := last.apply(look)
	return s, nil
}

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
	// Hold calls f with a Table whose statements run in one transaction, which
	// holds the row's lock from before f is called until it returns, and commits
	// if f returns nil. If there is no row nothing is locked.
	Hold(ctx context.Context, op limiter.Op, f func(held Table) error) error
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

// Apply is op.Apply on what was read.
func (r Reading) Apply(op limiter.Op) (limiter.Row, limiter.State) {
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
		_, s := r.Apply(op)
		return s, nil
	case limiter.OpRefund, limiter.OpCancel, limiter.OpReset:
		took, err := t.Change(ctx, op)
		return limiter.State{Took: took}, err
	}
	return limiter.State{}, fmt.Errorf("operation %d: %w", op.Kind, errors.ErrUnsupported)
}

// tries is how often the second look goes without a lock. Each time that it loses
// somebody else's take has won, which is rare but where two policies meet on a
// busy key: there, of 1,600 takes by 16 callers, 160 lost three times in a row.
const tries = 2

// take runs the hot statement and, where that cannot decide, the second look:
// row and clock are read once more, [limiter.Op.Apply] decides on them, and what
// it writes is written by compare-and-set. Whoever loses that starts again with
// the hot statement, because what won may have brought the row under op's policy,
// where a row lock decides and no race is lost; at last it looks while it holds
// the row.
func take(ctx context.Context, t Table, op limiter.Op) (limiter.State, error) {
	for range tries {
		s, decided, err := t.Take(ctx, op)
		if err != nil || decided {
			return s, err
		}
		s, won, err := secondLook(ctx, t, op)
		if err != nil || won {
			return s, err
		}
	}
	return lookHeld(ctx, t, op)
}

// holds is how often the second look goes with a lock: where there is no row, none can be
// locked, and that another one made it in the meantime is found only by the swap. Then
// there is one to lock.
const holds = 2

// lookHeld is the second look while the row is held.
func lookHeld(ctx context.Context, t Table, op limiter.Op) (s limiter.State, err error) {
	for won, n := false, 0; n < holds && !won; n++ {
		err = t.Hold(ctx, op, func(held Table) (err error) {
			s, won, err = secondLook(ctx, held, op)
			return err
		})
		if err != nil { // that of the commit, it may be
			return limiter.State{}, err
		}
	}
	return s, nil
}

// secondLook decides on the row as it is now. If it loses the race for the row,
// which under a lock only one that was just made or swept can, it returns a refusal
// that says to come back at once.
func secondLook(ctx context.Context, t Table, op limiter.Op) (s limiter.State, won bool, err error) {
	r, err := t.Look(ctx, op)
	if err != nil {
		return s, false, err
	}
	next, s := r.Apply(op)
	if next == r.Row {
		return s, true, nil
	}
	swapped, err := t.Swap(ctx, op, r.Row, next)
	if err != nil {
		return limiter.State{}, false, err
	}
	if !swapped {
		look := op
		look.Kind = limiter.OpLook
		_, found := r.Apply(look)
		found.Wait = s.Wait // op's own: a look asks for a cost of 1
		s = found
	}
	return s, swapped, nil
}

// Earlier returns the state that a take left which was granted with others of the same
// kind in one statement, behind of them after it.
func Earlier(op limiter.Op, s limiter.State, behind int64) limiter.State {
	switch p := op.Policy.(type) {
	case limiter.TokenBucket:
		s.Row.FullAt -= behind * op.Cost * int64(p.Step())
	case limiter.FixedWindow:
		s.Row.Used -= behind * op.Cost
	}
	return s
}

package postgres

import (
	"context"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// settle decides calls of one key by [limiter.Op.Apply]: in two statements, however many calls
// there are, or six more. It reads the row and the clock, and decides the calls that would
// change nothing. It applies the others one after another, and replaces the row if it is still what
// was read and no other session has the key's advisory lock. Otherwise it decides them again while it holds
// that lock and the row's. See DESIGN.md, "Settle decides what a statement cannot".
func (s *Store) settle(ctx context.Context, db DB, t *table, calls []*batch.Call) error {
	calls = undecided(calls)
	if len(calls) == 0 {
		return nil
	}
	r, err := s.readRow(ctx, db, t, &calls[0].Op)
	if err != nil {
		return s.readError(ctx, err)
	}
	for _, c := range calls {
		if next, state := r.apply(r.row, c.Op); next == r.row {
			c.Decide(state)
		}
	}
	if calls = undecided(calls); len(calls) == 0 {
		return nil
	}
	next, states := applyAll(r, calls)
	look := calls[0].Op.Kind == limiter.OpLook // it converts or anchors a row, if that is possible at once
	won := false
	swap := func(db DB) (err error) { won, err = s.swapIfChanged(ctx, db, t, calls, r.row, next); return err }
	if look && s.boundsWaits && inTransaction(db) { // a failure must not end the transaction
		err = committed(ctx, db, swap)
	} else {
		err = swap(db)
	}
	if err != nil && !(look && s.boundsWaits && isLocked(err)) {
		return err
	}
	if !won && !look {
		return s.settleLocked(ctx, db, t, calls)
	}
	decideAll(calls, states)
	return nil
}

// lockTries is how often settleLocked tries. If there is no row, it can lock none, and the swap
// fails if another process has added one. The second try locks that row.
const lockTries = 2

// settleLocked decides calls of one key while it holds the row's lock. Takes that lose the race
// even so are refused, and may be retried at once: see [limiter.Result].RetryAfter. Other calls
// fail.
func (s *Store) settleLocked(ctx context.Context, db DB, t *table, calls []*batch.Call) error {
	var r reading
	var states []limiter.State
	for range lockTries {
		won := false
		err := s.withRowLocked(ctx, db, t, &calls[0].Op, func(tx DB) (err error) {
			if r, err = s.readRow(ctx, tx, t, &calls[0].Op); err != nil {
				return s.readError(ctx, err)
			}
			var next limiter.Row
			next, states = applyAll(r, calls)
			won, err = s.swapIfChanged(ctx, tx, t, calls, r.row, next)
			return err
		})
		if err != nil { // also that of the commit
			return err
		}
		if won {
			decideAll(calls, states)
			return nil
		}
	}
	if !batch.Refusable(&calls[0].Op) {
		return fmt.Errorf("%w: other processes kept changing the row", limiter.ErrNotApplied)
	}
	for i, c := range calls {
		peek := c.Op
		peek.Kind = limiter.OpLook
		_, found := r.apply(r.row, peek)
		found.Wait = states[i].Wait // that of the take, not of the look
		c.Decide(found)
	}
	return nil
}

// applyAll applies calls one after another to the row that was read.
func applyAll(r reading, calls []*batch.Call) (limiter.Row, []limiter.State) {
	row, states := r.row, make([]limiter.State, len(calls))
	for i, c := range calls {
		row, states[i] = r.apply(row, c.Op)
	}
	return row, states
}

func (s *Store) swapIfChanged(ctx context.Context, db DB, t *table, calls []*batch.Call, from, to limiter.Row) (bool, error) {
	if from == to {
		return true, nil
	}
	return s.swap(ctx, db, t, &calls[0].Op, from, to)
}

func decideAll(calls []*batch.Call, states []limiter.State) {
	for i, c := range calls {
		c.Decide(states[i])
	}
}

// undecided returns the calls that were not decided yet.
func undecided(calls []*batch.Call) (rest []*batch.Call) {
	for _, c := range calls {
		if !c.Decided() {
			rest = append(rest, c)
		}
	}
	return rest
}

package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
)

const (
	// lockAllTries is how often settleAll tries. The first try may find rows missing, and a sweep may
	// delete one between the time at which the next try finds it and that at which it locks it.
	lockAllTries = 4
	// deadlockTries is how often settleAll tries if Citus ends the transaction as the victim of a
	// deadlock. Its detector does so although there is none: see DESIGN.md, "AllowAll waits for a
	// lock only while it holds none".
	deadlockTries = 20
)

// settleAll decides takes of several rows by [limiter.ApplyAll] in a transaction: it locks the rows in
// order, then reads the clock, and writes the rows that change. If add is set, rows are missing. It
// adds them as never used, in order, before it locks any. It waits for the row first only, and returns
// a row that another session has locked.
func (s *Store) settleAll(ctx context.Context, db DB, tables []*table, ops []limiter.Op, first int, add bool) (states []limiter.State, locked int, err error) {
	deadlocks := 0
	for n := 0; n < lockAllTries; {
		var lost bool
		states, lost, locked, err = s.settleAllOnce(ctx, db, tables, ops, first, add)
		switch {
		case err == nil && !lost:
			return states, locked, nil
		case err == nil:
			n, add = n+1, true
		case s.citus && sqlState(err) == deadlockDetected && deadlocks < deadlockTries && !inTransaction(db):
			deadlocks++
			if !pause(ctx, rand.N(leastPause)+time.Millisecond) {
				return nil, noneLocked, err
			}
		default:
			return nil, noneLocked, err
		}
	}
	return nil, noneLocked, fmt.Errorf("%w: rows were deleted or moved meanwhile, %d times", limiter.ErrNotApplied, lockAllTries)
}

// settleAllOnce is one transaction of settleAll. lost reports whether it did nothing because a row is
// missing or differs from the row that was locked. locked is the row that another session has locked.
func (s *Store) settleAllOnce(ctx context.Context, db DB, tables []*table, ops []limiter.Op, first int, add bool) (states []limiter.State, lost bool, locked int, err error) {
	r := rowsRead{rows: make([]limiter.Row, len(ops)), now: ops[0].At}
	var steps []step
	for i, t := range tables {
		if add {
			period, limit, _ := t.Numbers(&ops[i])
			steps = append(steps, step{sql: t.sql.add, args: s.bounded(ctx, []any{ops[i].Name, []byte(ops[i].Key), period, limit})})
		}
	}
	found, seen := make([]bool, len(ops)), make([]reading, len(ops))
	for n, i := range lockOrder(len(ops), first) {
		t, key, text := tables[i], []any{ops[i].Name, []byte(ops[i].Key)}, tables[i].sql.skip
		if n == 0 {
			text = t.sql.lock
		} else if s.boundsWaits { // a skipped row looks like a missing one
			steps = append(steps, step{sql: t.sql.read, args: key, dest: t.fields([]any{&seen[i].now}, &seen[i].row)})
		}
		steps = append(steps, step{sql: text, args: s.bounded(ctx, key), dest: t.fields(nil, &r.rows[i]), found: &found[i]})
	}
	if ops[0].At == 0 {
		steps = append(steps, step{sql: s.tables[0].sql.clock, dest: []any{&r.now}})
	}
	tx, err := s.beginWith(ctx, db, steps)
	if err != nil {
		return nil, false, noneLocked, s.readError(ctx, err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	next, states, room := r.apply(ops)
	var last []step
	for i, t := range tables {
		if !found[i] && seen[i].row != (limiter.Row{}) {
			return nil, false, i, nil
		}
		if !found[i] && room {
			return nil, true, noneLocked, nil
		}
		if next[i] != r.rows[i] {
			last = append(last, step{sql: t.sql.swap, args: s.bounded(ctx, t.swapArgs(&ops[i], r.rows[i], next[i])), found: new(bool)})
		}
	}
	if len(last) == 0 {
		return states, false, noneLocked, nil
	}
	if err := s.sendSteps(ctx, tx, last); err != nil {
		return nil, false, noneLocked, s.readError(ctx, err)
	}
	if slices.ContainsFunc(last, func(p step) bool { return !*p.found }) {
		return nil, true, noneLocked, nil
	}
	if err := tx.Commit(ctx); err != nil {
		return nil, false, noneLocked, commitError{err}
	}
	return states, false, noneLocked, nil
}

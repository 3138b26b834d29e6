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
	// lockAllTries is how often settle tries. The first try may find rows missing, and a sweep may
	// delete one after the next try has found it and before it locks it.
	lockAllTries = 4
	// deadlockTries is how often settle tries if Citus ends the transaction as the victim of a
	// deadlock. Its detector does so although there is none: see DESIGN.md, "AllowAll waits for a
	// lock only while it holds none".
	deadlockTries = 20
)

// settle decides the takes by [limiter.ApplyAll] in a transaction: it locks the rows in order, then reads
// the clock, and writes the rows that change. If add is set, rows are missing. It adds them as unused rows,
// in order, before it locks any. It waits for the row first only, and decides nothing if another session has
// locked a row.
func (d *allDecision) settle(ctx context.Context, db DB, add bool) error {
	deadlocks := 0
	for n := 0; n < lockAllTries; {
		lost, err := d.settleOnce(ctx, db, add)
		switch {
		case err == nil && !lost:
			return nil
		case err == nil:
			n, add = n+1, true
		case d.citus && sqlState(err) == deadlockDetected && deadlocks < deadlockTries && !inTransaction(db):
			deadlocks++
			if !pause(ctx, rand.N(leastPause)+time.Millisecond) {
				return err
			}
		default:
			return err
		}
	}
	return fmt.Errorf("%w: rows were deleted or moved meanwhile, %d times", limiter.ErrNotApplied, lockAllTries)
}

// settleOnce is one transaction of settle. lost reports whether it did nothing because a row is missing or
// differs from the row that was locked.
func (d *allDecision) settleOnce(ctx context.Context, db DB, add bool) (lost bool, err error) {
	n := len(d.ops)
	r := rowsRead{rows: make([]limiter.Row, n), now: d.ops[0].At}
	sts := d.keyLocks(ctx)
	for i, t := range d.tables {
		if add {
			n := d.numbers(t, &d.ops[i])
			sts = append(sts, statement{sql: t.sql.add, args: d.bounded(ctx, []any{d.ops[i].Name, []byte(d.ops[i].Key), n.Period, n.Limit}, 0)})
		}
	}
	found, seen := make([]bool, n), make([]reading, n)
	for _, i := range lockOrder(n, d.first) {
		t, key, text := d.tables[i], []any{d.ops[i].Name, []byte(d.ops[i].Key)}, d.tables[i].sql.skip
		if i == d.first {
			text = t.sql.lock
		} else if d.boundsWaits { // a skipped row looks like a missing one
			sts = append(sts, statement{sql: t.sql.read, args: key, dest: t.fields([]any{&seen[i].now}, &seen[i].row)})
		}
		sts = append(sts, statement{sql: text, args: d.bounded(ctx, key, 0), dest: t.fields(nil, &r.rows[i]), found: &found[i]})
	}
	if d.ops[0].At == 0 {
		sts = append(sts, statement{sql: d.tables[0].sql.clock, dest: []any{&r.now}})
	}
	tx, err := d.beginWith(ctx, db, sts)
	if err != nil {
		return false, d.readError(ctx, err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	next, states, room := r.apply(d.ops)
	var last []statement
	for i, t := range d.tables {
		if !found[i] && seen[i].row != (limiter.Row{}) {
			d.locked = i
			return false, nil
		}
		if !found[i] && room {
			return true, nil
		}
		if next[i] != r.rows[i] {
			args := d.bounded(ctx, t.swapArgs(&d.ops[i], r.rows[i], next[i]), 0)
			if d.boundsWaits {
				args = append(args, nil) // NULL: it has locked the row already
			}
			last = append(last, statement{sql: t.sql.swap, args: args, found: new(bool)})
		}
	}
	if len(last) > 0 {
		if err := d.sendPipelined(ctx, tx, last); err != nil {
			return false, d.readError(ctx, err)
		}
		if slices.ContainsFunc(last, func(p statement) bool { return !*p.found }) {
			return true, nil
		}
		if err := tx.Commit(ctx); err != nil {
			return false, commitError{err}
		}
	}
	d.states = states
	return false, nil
}

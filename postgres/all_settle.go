package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sqlimit/limiter"
)

const (
	// lockAllTries is how often settleAll tries. The first try may find rows missing, and a sweep may
	// delete one between the time at which the next try finds it and that at which it locks it.
	lockAllTries = 4
	// deadlockTries is how often settleAll tries if Citus ends the transaction as the victim of a
	// deadlock. Its detector does so although there is none: see DESIGN.md, "AllowAll locks all rows
	// in one order".
	deadlockTries = 20
)

// settleAll decides takes of several rows by [limiter.ApplyAll] in a transaction: it locks the rows in
// order, then reads the clock, and writes the rows that change. If add is set, rows are missing. It
// adds them as never used, in order, before it locks any.
func (s *Store) settleAll(ctx context.Context, db DB, tables []*table, ops []limiter.Op, add bool) (states []limiter.State, err error) {
	deadlocks := 0
	for n := 0; n < lockAllTries; {
		var missing bool
		states, missing, err = s.settleAllOnce(ctx, db, tables, ops, add)
		switch {
		case err == nil && !missing:
			return states, nil
		case err == nil:
			n, add = n+1, true
		case s.citus && sqlState(err) == deadlockDetected && deadlocks < deadlockTries && !inTransaction(db):
			deadlocks++
			if !pause(ctx, rand.N(leastPause)+time.Millisecond) {
				return nil, err
			}
		default:
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: rows were deleted meanwhile, %d times", limiter.ErrNotApplied, lockAllTries)
}

// settleAllOnce is one transaction of settleAll. It reports whether it did nothing because a row is
// missing.
func (s *Store) settleAllOnce(ctx context.Context, db DB, tables []*table, ops []limiter.Op, add bool) (states []limiter.State, missing bool, err error) {
	r := rowsRead{rows: make([]limiter.Row, len(ops)), now: ops[0].At}
	var first []step
	for i, t := range tables {
		if add {
			period, limit, _ := t.numbers(&ops[i])
			first = append(first, step{sql: t.sql.add, args: []any{ops[i].Name, []byte(ops[i].Key), period, limit}})
		}
	}
	found := make([]bool, len(ops))
	for i, t := range tables {
		first = append(first, step{
			sql: t.sql.lock, args: []any{ops[i].Name, []byte(ops[i].Key)},
			dest: t.fields(nil, &r.rows[i]), found: &found[i],
		})
	}
	if ops[0].At == 0 {
		first = append(first, step{sql: s.buckets.sql.clock, dest: []any{&r.now}})
	}
	tx, err := s.beginWith(ctx, db, first)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	next, states, room := r.apply(ops)
	var last []step
	for i, t := range tables {
		if !found[i] && room {
			return nil, true, nil
		}
		if next[i] != r.rows[i] {
			last = append(last, step{sql: t.sql.swap, args: t.swapArgs(&ops[i], r.rows[i], next[i])})
		}
	}
	if len(last) == 0 {
		return states, false, nil
	}
	return states, false, s.commitWith(ctx, tx, last)
}

package postgres

import (
	"cmp"
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// giveBack carries out refunds, cancels, releases and resets of one key, if the kind has the statements for
// them. It sends several in one round trip, and the server carries them out in one transaction. A state has
// the row only if the call took.
func (s *Store) giveBack(ctx context.Context, db DB, t *table, calls []*batch.Call) (done bool, err error) {
	var now int64 // of the coordinator of Citus, where these statements read no clock
	for _, c := range calls {
		if sql, _ := t.giveBackStatement(&c.Op); sql == "" {
			return false, nil
		}
		if s.citus && now == 0 && c.Op.At == 0 && c.Op.Kind != limiter.OpReset && c.Op.Kind != limiter.OpRelease {
			if now, err = s.readClock(ctx, db, t); err != nil {
				return false, s.readError(ctx, err)
			}
		}
	}
	states := make([]limiter.State, len(calls))
	statements := make([]statement, len(calls))
	for i, c := range calls {
		op := c.Op
		op.At = cmp.Or(op.At, now)
		sql, args := t.giveBackStatement(&op)
		statements[i] = statement{sql: sql, args: s.bounded(ctx, args, 0), dest: t.fields(nil, &states[i].Row), found: &states[i].Took}
	}
	if err := s.sendTogether(ctx, db, statements); err != nil {
		return false, err
	}
	err = s.releaseLocked(ctx, db, t, calls, states, statements)
	for i, c := range calls {
		if err == nil || states[i].Took || c.Op.Kind != limiter.OpRelease {
			c.Decide(states[i])
			done = true // the queue sends those again that are not decided
		}
	}
	if done {
		return true, nil
	}
	return false, err
}

// releaseLocked waits for the row's lock, and then sends the releases again that found no lease. An acquire of
// unknown outcome may still hold that lock, and a release waits for it only if it sees the lease.
func (s *Store) releaseLocked(ctx context.Context, db DB, t *table, calls []*batch.Call, states []limiter.State, sent []statement) error {
	var again []statement
	for i, c := range calls {
		if c.Op.Kind == limiter.OpRelease && !states[i].Took {
			again = append(again, sent[i])
		}
	}
	if len(again) == 0 {
		return nil
	}
	err := s.awaitRow(ctx, db, t, &calls[0].Op)
	if err == nil {
		err = s.sendPipelined(ctx, db, again)
	}
	if err != nil {
		for i := range again {
			*again[i].found = false // what a batch has answered is rolled back if a later statement fails
		}
		return commitError{err} // what was sent first is committed
	}
	return nil
}

// awaitRow waits until op's row can be locked. If there is none, it waits for a transaction that is adding one,
// which no statement sees before it is committed. So awaitRow adds an unused row, which waits for the other
// one, and rolls back.
func (s *Store) awaitRow(ctx context.Context, db DB, t *table, op *limiter.Op) error {
	found, err := s.lock(ctx, db, t, op)
	if err != nil || found {
		return err
	}
	tx, err := begin(ctx, db)
	if err != nil {
		return err
	}
	n := s.numbers(t, op)
	policy := []any{n.Period, n.Limit}[2-t.PolicyColumns:] // a lease has no period
	_, err = s.exec(ctx, tx, t.sql.add, s.bounded(ctx, append([]any{op.Name, []byte(op.Key)}, policy...), 0)...)
	return cmp.Or(err, tx.Rollback(ctx))
}

// giveBackStatement returns the statement of a refund, cancel, release or reset. It is empty if the kind has
// none.
func (t *table) giveBackStatement(op *limiter.Op) (sql string, args []any) {
	args = []any{op.Name, []byte(op.Key)}
	switch op.Kind {
	case limiter.OpRefund:
		if t.sql.refund != "" {
			return t.sql.refund, append(args, t.refund(op)...)
		}
	case limiter.OpCancel:
		if t.sql.cancel != "" {
			return t.sql.cancel, append(args, t.cancel(op)...)
		}
	case limiter.OpRelease:
		return t.sql.release, append(args, op.ID)
	case limiter.OpReset:
		return t.sql.reset, args
	}
	return "", nil
}

package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/sqlitecode"
)

// tick is the resolution of the clock in nanoseconds.
const tick = 1

// settle carries out the operations of one key by [limiter.Op.Apply], one after another at one reading of
// the clock.
func (w *writeTx) settle(ctx context.Context, t *table, g *batch.Group) error {
	op := *g.Op()
	op.At = 0 // read the clock, for the calls without their own time
	key := keyArgs(&op)
	row, now, err := w.read(ctx, w.tx, t, &op, key)
	if err != nil {
		return err
	}
	written := row
	for i, call := range g.Calls {
		at := now
		if call.Op.At != 0 {
			at = call.Op.At
		}
		var state limiter.State
		row, state = call.Op.Apply(row, at)
		call.Decide(stateOf(call.Op, state))
		if row == written || i < len(g.Calls)-1 && !batch.GivesBack(&call.Op) {
			continue
		}
		if err := put(ctx, w.tx, t, &row, key); err != nil {
			return err
		}
		written = row
	}
	return nil
}

// read reads the row of op, the zero Row if there is none, and then the clock. In this order no row
// seems to come from a clock ahead of ours, however long the process was stopped in between. A
// slightly old row does no harm, because takes only lower what is left.
func (s *Store) read(ctx context.Context, from session, t *table, op *limiter.Op, key []any) (row limiter.Row, now int64, err error) {
	if row, err = readRow(ctx, from, t, key); err != nil {
		return limiter.Row{}, 0, err
	}
	now, err = op.Clock(s.now)
	return row, now, err
}

func readRow(ctx context.Context, from session, t *table, key []any) (row limiter.Row, err error) {
	fields := t.Fields(nil, &row)
	err = from.query(ctx, t.row, func(columns []driver.Value) error { return scan(columns, fields...) }, key...)
	return row, err
}

// put writes the row that [limiter.Op.Apply] returned.
func put(ctx context.Context, tx transaction, t *table, row *limiter.Row, key []any) error {
	_, err := tx.exec(ctx, t.put, t.values(key, row)...)
	return err
}

// commit commits a transaction. Only a commit can leave the outcome unknown, unless it failed
// because of a lock.
func (s *Store) commit(ctx context.Context, tx transaction) error {
	err := tx.commit(ctx)
	switch {
	case err == nil:
		s.commits.Add(1)
		s.counters.Answered()
		return nil
	case sqlitecode.IsBusy(err):
		return err
	}
	return interpretError(ctx, err, true)
}

// stateOf converts the state that Apply returned to the state that the store returns.
func stateOf(op limiter.Op, state limiter.State) limiter.State {
	if batch.GivesBack(&op) {
		return batch.GivenBack(state)
	}
	state.Tick = tick
	return state
}

package sqlite

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// carryOut carries out the operations of all groups in a transaction, commits it and answers the
// calls. It reads first, so that operations that change nothing, such as refused takes, need no
// write lock. If it fails, it leaves only groups answered that change nothing.
func (s *Store) carryOut(ctx context.Context, tx transaction, groups []*batch.Group) (err error) {
	var changes []change
	defer func() {
		for i := 0; err != nil && i < len(changes); i++ {
			changes[i].group.Retract()
		}
	}()
	for _, g := range groups {
		if changes, err = s.decide(ctx, tx, g, changes); err != nil {
			return err
		}
	}
	for i := range changes {
		if err := s.write(ctx, tx, &changes[i]); err != nil {
			return err
		}
	}
	return s.commit(ctx, tx)
}

// change is a row that a group of operations leaves.
type change struct {
	group *batch.Group
	table *table
	key   []any
	row   limiter.Row
	now   int64
	units int64 // how many equal takes it grants; 0 if other operations changed the row
}

// decide reads the row of a group and lets [limiter.Op.Apply] decide its calls, one after another at
// one reading of the clock. It answers them, and appends to changes what is to be written.
func (s *Store) decide(ctx context.Context, tx transaction, g *batch.Group, changes []change) ([]change, error) {
	op := *g.Op()
	t, err := tableOf(op.Policy)
	if err != nil {
		return changes, err
	}
	op.At = 0 // read the clock, for the calls without their own time
	key := keyArgs(&op)
	row, now, err := s.read(ctx, tx, t, &op, key)
	if err != nil {
		return changes, err
	}
	written, taken, units := row, row, int64(0)
	for i, call := range g.Calls {
		at := now
		if call.Op.At != 0 {
			at = call.Op.At
		}
		var state limiter.State
		row, state = call.Op.Apply(row, at)
		call.Answer(answer(call.Op, state))
		if state.Took {
			taken, units = row, units+1
		}
		if row == written || i < len(g.Calls)-1 && !batch.GivesBack(&call.Op) {
			continue
		}
		c := change{group: g, table: t, key: key, row: row, now: at}
		// Takes that may wait could wait for different windows. A refusal can also change the row.
		if op.Kind == limiter.OpTake && g.Equal && (units == 1 || op.MaxWait == 0) && row == taken {
			c.units = units
		}
		changes, written = append(changes, c), row
	}
	return changes, nil
}

// write writes a change. Takes are decided by an UPSERT. If it does not grant them, because the row
// has another policy or is ahead of the clock, write puts the row that [limiter.Op.Apply] returned.
func (s *Store) write(ctx context.Context, tx transaction, c *change) error {
	if c.units > 0 {
		st, args := c.table.takeStatement(c.group.Op(), c.now, c.units, c.key)
		granted, err := tx.exec(ctx, st, args...)
		if err != nil || granted > 0 {
			return err
		}
		s.counters.SecondLooks.Add(c.units)
	}
	return put(ctx, tx, c.table, &c.row, c.key)
}

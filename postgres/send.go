package postgres

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// send sends a statement of the queue.
func (s *Store) send(ctx context.Context, t *table, st *batch.Statement) (err error) {
	defer st.Recover(&err)
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer s.release(conn)
	if ctx, err = st.Begin(ctx, fresh(conn)); err != nil {
		return err
	}
	groups := st.Groups
	first := groups[0].Calls[0]
	a := access(!first.LocksOnly && first.Op.Kind != limiter.OpLook) // a look shares no statement with a take
	return s.runOn(ctx, conn, a, func(db DB) (err error) {
		if len(groups) == 1 {
			return s.carryOut(ctx, db, t, groups[0])
		}
		_, err = s.takeMerged(ctx, db, t, groups)
		return err
	})
}

// carryOut carries out the calls of one key on db, by the statement that fits them, or else by
// [Store.settle].
func (s *Store) carryOut(ctx context.Context, db DB, t *table, g *batch.Group) error {
	decided, err := s.byStatement(ctx, db, t, g)
	if err != nil || decided {
		return err
	}
	return s.settle(ctx, db, t, g.Calls)
}

// byStatement carries out the calls of one key if there is a statement for them: a lone call has one of its
// own, and equal takes share a merged one. It reports whether the statement decided them; of equal takes,
// those that are not granted beside others go into the next statement.
func (s *Store) byStatement(ctx context.Context, db DB, t *table, g *batch.Group) (decided bool, err error) {
	first, op := g.Calls[0], g.Op()
	switch {
	case first.LocksOnly:
		return true, s.lockOnly(ctx, db, t, g)
	case first.ReadFirst:
	case s.citus && hasUnits(op) && (g.Equal || len(g.Calls) == 1):
		return s.takeOnCitus(ctx, db, t, g)
	case s.citus && !batch.GivesBack(op):
	case len(g.Calls) == 1 && (op.Kind == limiter.OpTake || op.Kind == limiter.OpCharge):
		return s.takeOne(ctx, db, t, first)
	case g.Equal || len(g.Calls) == 1 && op.Kind == limiter.OpTakeUpTo:
		return s.takeMerged(ctx, db, t, []*batch.Group{g})
	case batch.GivesBack(op):
		return s.giveBack(ctx, db, t, g.Calls)
	}
	return false, nil
}

// lockOnly waits until the row of a group can be locked. The lock ends with the statement.
func (s *Store) lockOnly(ctx context.Context, db DB, t *table, g *batch.Group) error {
	if err := s.lock(ctx, db, t, g.Op()); err != nil {
		return err
	}
	decideAll(g.Calls, make([]limiter.State, len(g.Calls)))
	return nil
}

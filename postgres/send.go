package postgres

import (
	"context"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

const (
	// mergedKeys is the most keys of one statement.
	mergedKeys = 256
	// sharedStatements is how many statements for many keys are in flight at a time.
	sharedStatements = 2
	// singleStatements is how many statements for one key each are in flight at a time, if the pool is that
	// large. More would only wait for a connection.
	singleStatements = 16
	// hotKey is how many calls wait for a key before it gets statements of its own.
	hotKey = 8
	// giveBacks is the most statements of a pgx batch. They hold the row's lock until the last.
	giveBacks = 64
	// lockWait is how long a statement for one key waits for a locked row. Then the key's next
	// statement waits longer, but only half of the pool may run such statements.
	lockWait = 20 * time.Millisecond
	// sharedLockWait is how long a statement for many keys waits. Then the store tries the keys one by
	// one.
	sharedLockWait = 50 * time.Millisecond
)

func (s *Store) newQueue(t *table) *batch.Queue {
	config := batch.Config{
		Send: func(ctx context.Context, st *batch.Statement) error { return s.send(ctx, t, st) },
		Keys: mergedKeys, Shared: sharedStatements, Single: min(singleStatements, max(1, int(s.maxConns()))), HotKey: hotKey,
		GiveBacks: giveBacks, LockWait: lockWait, SharedLockWait: sharedLockWait, Locked: isLocked, Slots: s.slots,
		Merges: t.merges, Deadlines: &s.deadlines, Counters: &s.counters,
	}
	if s.mode != nil {
		config.GiveBacks = 1 // pgx sends a batch in the query mode of the connection alone
	}
	if t.sql.release == "" && (t.sql.refund == "" || t.sql.cancel == "") {
		config.GiveBacks = 1 // settle would write the row once for several, and an audit must see each
	}
	if s.citus || t.sql.takes == "" {
		config.Keys, config.HotKey = 1, 0 // no statement takes from several keys; on Citus it goes to one shard
	}
	if s.citus {
		config.LockWait = 0 // Citus evaluates no set_config there
		config.Locked = timedOut
	}
	return batch.New(config)
}

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
	err = s.runOn(ctx, conn, a, func(db DB) (err error) {
		if len(groups) == 1 {
			return s.carryOut(ctx, db, t, groups[0])
		}
		_, err = s.takeMerged(ctx, db, t, groups)
		return err
	})
	if err != nil && s.boundsWaits && len(groups) == 1 && isLocked(err) && st.NeedsWritten() {
		st.Written = s.written(ctx, conn, t, &first.Op)
	}
	return err
}

// carryOut carries out the calls of one key on db, by the statement that fits them, or else by
// [Store.settle].
func (s *Store) carryOut(ctx context.Context, db DB, t *table, g *batch.Group) error {
	done, err := s.byStatement(ctx, db, t, g)
	if err != nil || done {
		return err
	}
	return s.settle(ctx, db, t, g.Calls)
}

// byStatement carries out the calls of one key if there is a statement for them: a lone call has one of its
// own, and equal takes share a merged one. If done is false, settle must decide the calls. If done is true,
// the queue sends those again that are not decided.
func (s *Store) byStatement(ctx context.Context, db DB, t *table, g *batch.Group) (done bool, err error) {
	first, op := g.Calls[0], &g.Calls[0].Op
	lone := len(g.Calls) == 1
	switch {
	case first.LocksOnly:
		return true, s.lockOnly(ctx, db, t, g)
	case first.ReadFirst: // settle reads it
	case s.citus && hasUnits(op) && (g.Equal || lone):
		return s.takeOnCitus(ctx, db, t, g)
	case lone && op.Kind == limiter.OpAcquire:
		return s.takeLease(ctx, db, t, g)
	case s.citus && !batch.GivesBack(op): // Citus has no other statement
	case t.takesUnits && op.Cost > 0 && (g.Equal || lone) && (op.Kind == limiter.OpTake || op.Kind == limiter.OpTakeUpTo):
		return s.takeUnits(ctx, db, t, g)
	case t.takesUnits && !batch.GivesBack(op): // there is no other statement
	case lone && (op.Kind == limiter.OpTake || op.Kind == limiter.OpCharge):
		return s.takeOne(ctx, db, t, first)
	case g.Equal || lone && op.Kind == limiter.OpTakeUpTo:
		return s.takeMerged(ctx, db, t, []*batch.Group{g})
	case batch.GivesBack(op):
		return s.giveBack(ctx, db, t, g.Calls)
	}
	return false, nil
}

// lockOnly waits until the row of a group can be locked, or added. The lock ends with the statement.
func (s *Store) lockOnly(ctx context.Context, db DB, t *table, g *batch.Group) error {
	if err := s.awaitRow(ctx, db, t, g.Op()); err != nil {
		return err
	}
	decideAll(g.Calls, make([]limiter.State, len(g.Calls)))
	return nil
}

// written returns when op's row was last written, by the process's clock, or the time of that operation, if it
// has its own. It is the present if no time is left to read the row, and zero if the read fails.
func (s *Store) written(ctx context.Context, db DB, t *table, op *limiter.Op) time.Time {
	asked := time.Now()
	r, err := s.readRowByNodeClock(ctx, db, t, op)
	switch {
	case err == nil:
		return asked.Add(-time.Duration(r.now - r.row.At))
	case ctx.Err() != nil:
		return asked
	}
	return time.Time{}
}

package sqlite

import (
	"context"
	"runtime"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// mergedKeys is the most keys of one transaction. It takes at most a few milliseconds; then other
// processes can write.
const mergedKeys = 256

func (s *Store) newQueue() *batch.Queue {
	// All keys share the one write lock: a hot key gains nothing by a transaction of its own.
	const never = 1 << 30
	return batch.New(batch.Config{
		Send: s.send, Keys: mergedKeys, Shared: 1, Single: 1, HotKey: never, GiveBacks: mergedKeys,
		Deadlines: &s.deadlines, Counters: &s.counters,
	})
}

// send carries out the operations of a statement in one transaction. It waits until it may write, and for the
// write lock.
func (s *Store) send(ctx context.Context, st *batch.Statement) (err error) {
	defer st.Recover(&err)
	_, writer, err := s.pools()
	if err != nil {
		return err
	}
	if err := s.startWriting(ctx); err != nil {
		return err
	}
	defer s.stopWriting()
	// First let other callers run: those that were just answered, and those that their look did not
	// refuse. Their operations then join this transaction. With 64 callers it has 30 keys instead of
	// 6. The write lock is free meanwhile.
	runtime.Gosched()
	w := &writeTx{Store: s, writer: writer}
	defer w.rollback()
	if err := attempt(ctx, w.begin); err != nil {
		return err
	}
	if ctx, err = st.Begin(ctx, false); err != nil {
		return err
	}
	return attemptWrite(ctx, writer, func(ctx context.Context) error { return w.carryOutAll(ctx, st.Groups) })
}

// writeTx is a transaction that has the write lock.
type writeTx struct {
	*Store
	writer pool
	tx     transaction // nil if it failed and was rolled back
}

func (w *writeTx) begin(ctx context.Context) (err error) {
	w.tx, err = w.writer.begin(ctx, true)
	return err
}

func (w *writeTx) rollback() {
	if w.tx != nil {
		w.tx.rollback()
		w.tx = nil
	}
}

// carryOutAll carries out all groups. If anything fails before the commit, it rolls all of it back. Without
// WAL the commit waits for readers.
func (w *writeTx) carryOutAll(ctx context.Context, groups []*batch.Group) (err error) {
	if w.tx == nil {
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			w.rollback()
		}
	}()
	for _, g := range groups {
		if err := w.carryOut(ctx, g); err != nil {
			return err
		}
	}
	return w.commit(ctx, w.tx)
}

// carryOut carries out the operations of one key, by the UPSERT of equal takes, or else by settle.
func (w *writeTx) carryOut(ctx context.Context, g *batch.Group) error {
	t := tableOf(g.Op().Policy)
	decided, err := w.byStatement(ctx, t, g)
	if err != nil || decided {
		return err
	}
	return w.settle(ctx, t, g)
}

// byStatement carries out equal takes by one UPSERT, which decides because the transaction has the write
// lock.
func (w *writeTx) byStatement(ctx context.Context, t *table, g *batch.Group) (decided bool, err error) {
	if !g.Equal {
		return false, nil
	}
	op, units := g.Op(), int64(len(g.Calls))
	now, err := op.Clock(w.now)
	if err != nil {
		return false, err
	}
	row, decided, err := w.takeUnits(ctx, t, op, now, units)
	if err != nil {
		return false, err
	}
	if !decided {
		if op.Kind == limiter.OpTake && t.take != nil {
			w.counters.SecondLooks.Add(units)
		}
		return false, nil
	}
	cost := t.Numbers(op, now).Cost
	for i, call := range g.Calls {
		row := row
		if rest := units - 1 - int64(i); rest > 0 {
			t.Add(&row, -rest*cost)
		}
		// A window that counts refusals counts all units, and tells by the count which of them pass.
		call.Decide(limiter.State{Row: row, Now: now, Tick: tick, Took: row.Used <= row.Limit})
	}
	return true, nil
}

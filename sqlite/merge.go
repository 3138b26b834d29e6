package sqlite

import (
	"context"
	"database/sql/driver"
	"runtime"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/tables"
)

// mergedKeys is the most keys of one transaction. It takes at most a few milliseconds; then other
// processes can write.
const mergedKeys = 256

func (s *Store) newQueue() *batch.Queue {
	// All keys share the one write lock: a hot key gains nothing by a transaction of its own.
	const never = 1 << 30
	return batch.New(sender{s}, batch.Config{Keys: mergedKeys, Shared: 1, Single: 1, HotKey: never, GiveBacks: mergedKeys, Deadlines: &s.deadlines, Counters: &s.counters})
}

// doQueued carries out op in a transaction together with others.
func (s *Store) doQueued(ctx context.Context, op limiter.Op) (limiter.State, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	return s.queue.Do(ctx, op)
}

// sender carries out the operations of the queue.
type sender struct{ *Store }

// Connect waits until it may write, and for the write lock.
func (s sender) Connect(ctx context.Context) (batch.Conn, error) {
	_, writer, err := s.pools()
	if err != nil {
		return nil, err
	}
	if err := s.startWriting(ctx); err != nil {
		return nil, err
	}
	// First let other callers run: those that were just answered, and those that their look did not
	// refuse. Their operations then join this transaction. With 64 callers it has 30 keys instead of
	// 6. The write lock is free meanwhile.
	runtime.Gosched()
	c := &senderConn{Store: s.Store, writer: writer}
	if err := attempt(ctx, c.begin); err != nil {
		s.stopWriting()
		return nil, err
	}
	return c, nil
}

// senderConn is a transaction that has the write lock.
type senderConn struct {
	*Store
	writer pool
	tx     transaction // nil if it failed and was rolled back
}

func (c *senderConn) Fresh() bool { return false }

func (c *senderConn) Release() {
	c.rollback()
	c.stopWriting()
}

func (c *senderConn) begin(ctx context.Context) (err error) {
	c.tx, err = c.writer.begin(ctx, true)
	return err
}

func (c *senderConn) rollback() {
	if c.tx != nil {
		c.tx.rollback()
		c.tx = nil
	}
}

// Send carries out all groups in one transaction. If anything fails before the commit, it rolls
// all of it back. Without WAL the commit waits for readers.
func (c *senderConn) Send(ctx context.Context, groups []*batch.Group) error {
	return attemptWrite(ctx, c.writer, func(ctx context.Context) (err error) {
		if c.tx == nil {
			if err := c.begin(ctx); err != nil {
				return err
			}
		}
		defer func() {
			if err != nil {
				c.rollback()
			}
		}()
		for _, g := range groups {
			if err := c.send(ctx, g); err != nil {
				return err
			}
		}
		return c.commit(ctx, c.tx)
	})
}

// send carries out the operations of one key. The transaction has the write lock, so one UPSERT
// decides equal takes. Op.Apply decides all others, and what the UPSERT could not decide.
func (c *senderConn) send(ctx context.Context, g *batch.Group) error {
	op := g.Op()
	t := tableOf(op.Policy)
	if !g.Equal {
		return c.apply(ctx, t, g)
	}
	now, err := op.Clock(c.now)
	if err != nil {
		return err
	}
	units := int64(len(g.Calls))
	row, granted, err := c.takeUnits(ctx, t, op, now, units)
	switch {
	case err != nil:
		return err
	case !granted:
		if op.Kind == limiter.OpTake {
			c.counters.SecondLooks.Add(units)
		}
		return c.apply(ctx, t, g)
	}
	_, _, cost := t.Numbers(op)
	for i, call := range g.Calls {
		row := row
		*t.Counter(&row) -= (units - 1 - int64(i)) * cost
		// A window that counts refusals counts all units, and tells by the count which of them pass.
		call.Answer(limiter.State{Row: row, Now: now, Tick: tick, Took: row.Used <= row.Limit})
	}
	return nil
}

// takeUnits takes units of op by one UPSERT, which decides, and returns the row that it left. If
// granted is false, nothing was written, and [limiter.Op.Apply] decides.
func (c *senderConn) takeUnits(ctx context.Context, t *table, op *limiter.Op, now, units int64) (row limiter.Row, granted bool, err error) {
	period, limit, _ := t.Numbers(op)
	// Units that may wait could have to wait for different windows. More units than the limit would be
	// too many for a key without a row, which the UPSERT inserts unconditionally.
	if op.Kind != limiter.OpTake || t.take == nil || t.Counter == nil || units > 1 && op.MaxWait > 0 || op.Cost > limit/units {
		return row, false, nil
	}
	fields := t.Fields(nil, &row)
	st, args := t.take(op, now, units, keyArgs(op))
	err = c.tx.query(ctx, st, func(columns []driver.Value) error {
		granted = true
		return scan(columns, fields[:len(fields)-tables.PolicyColumns]...)
	}, args...)
	row.Period, row.Limit = period, limit
	return row, granted, err
}

// apply carries out the operations of one key, one after another at one reading of the clock.
func (c *senderConn) apply(ctx context.Context, t *table, g *batch.Group) error {
	op := *g.Op()
	op.At = 0 // read the clock, for the calls without their own time
	key := keyArgs(&op)
	row, now, err := c.read(ctx, c.tx, t, &op, key)
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
		call.Answer(answer(call.Op, state))
		if row == written || i < len(g.Calls)-1 && !batch.GivesBack(&call.Op) {
			continue
		}
		if err := put(ctx, c.tx, t, &row, key); err != nil {
			return err
		}
		written = row
	}
	return nil
}

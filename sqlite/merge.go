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

func countsRefusals(p limiter.Policy) bool {
	w, ok := p.(limiter.FixedWindow)
	return ok && w.CountRejected
}

func (s *Store) newQueue() *batch.Queue {
	// All keys share the one write lock: a hot key gains nothing by a transaction of its own.
	const never = 1 << 30
	return batch.New(sender{s}, batch.Limits{Keys: mergedKeys, Shared: 1, Single: 1, HotKey: never, GiveBacks: mergedKeys, Time: &s.time})
}

// share carries out op in a transaction together with others.
func (s *Store) share(ctx context.Context, op limiter.Op) (limiter.State, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	return s.queue.Do(ctx, op)
}

// sender carries out the operations of the queue.
type sender struct{ *Store }

// Connect waits for the turn and for the write lock.
func (s sender) Connect(ctx context.Context) (batch.Conn, error) {
	_, writer, err := s.pools()
	if err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	// First let other callers run: those that were just answered, and those that their look did not
	// refuse. Their operations then join this transaction. With 64 callers it has 30 keys instead of
	// 6. The write lock is free meanwhile.
	runtime.Gosched()
	c := &senderConn{Store: s.Store, writer: writer}
	if err := attempt(ctx, c.begin); err != nil {
		s.leave()
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
	c.leave()
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
		return commit(ctx, c.tx)
	})
}

// send carries out the operations of one key, one after another at one reading of the clock.
func (c *senderConn) send(ctx context.Context, g *batch.Group) error {
	op := *g.Op()
	op.At = 0 // read the clock, for the calls without their own time
	t, err := tableOf(op.Policy)
	if err != nil {
		return err
	}
	args := find(op)
	row, now, err := c.read(ctx, c.tx, t, op, args)
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
		if _, err := c.tx.exec(ctx, t.put, t.append(args[:len(args):len(args)], &row)...); err != nil {
			return err
		}
		written = row
	}
	return nil
}

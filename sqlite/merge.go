package sqlite

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/sqlitecode"
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

// Connect waits until it may write. If another connection had the write lock before, Connect also
// waits for the lock, because a caller who leaves meanwhile was not charged.
func (s sender) Connect(ctx context.Context) (batch.Conn, error) {
	_, writer, err := s.pools()
	if err != nil {
		return nil, err
	}
	if err := s.startWriting(ctx); err != nil {
		return nil, err
	}
	c := &senderConn{Store: s.Store, writer: writer, locked: s.isContended(writer)}
	waited := false
	err = attempt(ctx, func(ctx context.Context) error {
		err := c.begin(ctx)
		waited = waited || err != nil
		return err
	})
	s.contended.Store(waited)
	if err != nil {
		s.stopWriting()
		return nil, err
	}
	return c, nil
}

// senderConn is the right to write, and a transaction.
type senderConn struct {
	*Store
	writer pool
	locked bool        // whether the transaction has the write lock from the start
	tx     transaction // nil if there is none
}

func (c *senderConn) Fresh() bool { return false }

func (c *senderConn) Release() {
	c.rollback()
	c.stopWriting()
}

func (c *senderConn) begin(ctx context.Context) (err error) {
	c.tx, err = c.writer.begin(ctx, c.locked)
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
//
// If another connection has the write lock, or has written since this one read, Send answers only
// what needs no lock, such as refusals, and returns [batch.ErrLocked].
func (c *senderConn) Send(ctx context.Context, groups []*batch.Group) error {
	waits := false
	err := attemptWrite(ctx, c.writer, func(ctx context.Context) error {
		if c.tx == nil {
			if err := c.begin(ctx); err != nil {
				return err
			}
		}
		err := c.carryOut(ctx, c.tx, groups)
		if err != nil {
			c.rollback()
		}
		if waits = !c.locked && sqlitecode.IsBusy(err); waits {
			return nil
		}
		return err
	})
	if waits {
		c.contended.Store(true)
		return batch.ErrLocked
	}
	return err
}

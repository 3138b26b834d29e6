package sqlite

import (
	"context"
	"runtime"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/coalesce"
)

// mergedRows is how many keys one transaction takes: at most a few milliseconds, after which another
// process has its turn.
const mergedRows = 256

// merges reports whether a take can go out together with others. Units of one row are told apart by
// how much they took, all in one window: so neither a booking ahead, nor a refusal that counts.
func merges(op limiter.Op) bool {
	return op.Kind == limiter.OpTake && op.MaxWait == 0 && op.Timeout > 0 && !countsRefusals(op.Policy)
}

func countsRefusals(p limiter.Policy) bool {
	w, ok := p.(limiter.FixedWindow)
	return ok && w.CountRejected
}

func (s *Store) newQueue() *coalesce.Queue {
	// All keys share the one lock that there is, so none is better off in a transaction of its own.
	const never = 1 << 30
	return coalesce.New(sender{s}, coalesce.Limits{Rows: mergedRows, Shared: 1, Alone: 1, Crowd: never, Time: &s.time})
}

// merge carries out a take together with those of others.
func (s *Store) merge(ctx context.Context, op limiter.Op) (limiter.State, bool, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	return s.queue.Take(ctx, op)
}

// sender carries out the takes of a queue.
type sender struct{ *Store }

// Connect waits for the turn and for the write lock.
func (s sender) Connect(ctx context.Context) (coalesce.Conn, error) {
	_, writer, err := s.pools()
	if err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	// Those who were just answered, or refused nothing by their look, come along if they run first: with
	// 64 callers a transaction takes 30 keys then, and 6 otherwise. The lock is free meanwhile.
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
	tx     transaction // nil if it has failed and was undone
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

// Send carries out all rows in one transaction. What fails before the commit is undone with it. Without
// WAL the commit waits for those who read.
func (c *senderConn) Send(ctx context.Context, rows []*coalesce.Row) error {
	return attempt(ctx, func(ctx context.Context) (err error) {
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
		for _, r := range rows {
			if err := c.send(ctx, r); err != nil {
				return err
			}
		}
		return commit(ctx, c.tx)
	})
}

// send carries out the takes of one key.
func (c *senderConn) send(ctx context.Context, r *coalesce.Row) error {
	t, err := tableOf(r.Op.Policy)
	if err != nil {
		return err
	}
	args := find(r.Op)
	row, now, err := c.read(ctx, c.tx, t, r.Op, args)
	if err != nil {
		return err
	}
	last := row
	r.Granted, r.Decided = 0, true
	for r.Granted < r.Units {
		next, state := r.Op.Apply(last, now)
		state.Tick = tick
		if !state.Took {
			if r.Granted == 0 {
				r.State = state
				r.Decided = next == row // a refusal that writes is not the same for the next unit
			}
			break
		}
		last, r.State = next, state
		r.Granted++
	}
	if last == row {
		return nil
	}
	_, err = c.tx.exec(ctx, t.put, t.append(args, &last)...)
	return err
}

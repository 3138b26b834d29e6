package sqlite

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// tick is the resolution of the clock in nanoseconds.
const tick = 1

// table returns the statements for a policy's kind.
func (s *Store) table(p limiter.Policy) (sqlstore.Table, error) {
	switch p := p.(type) {
	case limiter.TokenBucket:
		return buckets{s, p}, nil
	case limiter.FixedWindow:
		return windows{s, p}, nil
	}
	return nil, unsupported(p)
}

// refuse reports whether a take can be refused from a snapshot, and how. What would write cannot: a
// take that is granted, and a refusal on a row that a stepped-back clock or another policy left.
func refuse(ctx context.Context, t sqlstore.Table, op limiter.Op) (limiter.State, bool, error) {
	r, err := t.Look(ctx, op)
	if err != nil {
		return limiter.State{}, false, err
	}
	next, s := op.Apply(r.Row, r.Now)
	s.Tick = r.Tick
	return s, !s.Took && next == r.Row, nil
}

// look reads a row into dest by st, reports whether there is one, and then reads the clock. In this
// order no row can seem to come from a clock ahead of ours, however long the process was stopped in
// between; that it may be a little old does no harm, because takes only lower what is left.
func (s *Store) look(ctx context.Context, op limiter.Op, st statement, dest []any) (now int64, found bool, err error) {
	err = s.read(ctx, func(ctx context.Context, p *pool) (err error) {
		if found, err = p.row(ctx, st, dest, op.Name, []byte(op.Key)); err != nil {
			return err
		}
		now, err = op.Clock(s.now)
		return err
	})
	return now, found, err
}

// change runs the statement that f returns for the clock's reading, and reports whether it changed a
// row. The clock is read when it is this caller's turn.
func (s *Store) change(ctx context.Context, op limiter.Op, f func(now int64) (statement, []any)) (bool, error) {
	var n int64
	err := s.write(ctx, func(ctx context.Context, p *pool) error {
		now, err := op.Clock(s.now)
		if err != nil {
			return err
		}
		st, args := f(now)
		n, err = p.exec(ctx, st, args...)
		return err
	})
	return n > 0, err
}

// hold calls f with a Store whose statements run in one transaction under the write lock, which lock
// takes. Others may be refused meanwhile; nobody else writes. Only the commit can leave it in doubt
// what was done.
func (s *Store) hold(ctx context.Context, lock statement, f func(held *Store) error) error {
	return s.write(ctx, func(ctx context.Context, p *pool) error {
		tx, err := p.db.BeginTx(ctx, nil)
		if err != nil {
			return interpretError(ctx, err, false)
		}
		defer func() { _ = tx.Rollback() }() // after a commit it does nothing
		inside := &pool{db: p.db, tx: tx}
		if _, err := inside.exec(ctx, lock); err != nil {
			return interpretError(ctx, err, false)
		}
		held := &Store{path: s.path, now: s.now, turn: make(chan struct{}, 1), reader: inside, writer: inside}
		if err := f(held); err != nil {
			return err
		}
		return tx.Commit()
	})
}

package postgres

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// windows is limiter_fixed_windows under one policy.
type windows struct {
	*Store
	policy limiter.FixedWindow
}

func (w windows) window() int64 { return int64(w.policy.Window) }

func (w windows) Take(ctx context.Context, op limiter.Op) (limiter.State, bool, error) {
	if w.policy.CountRejected {
		return w.count(ctx, op)
	}
	if w.merges(op) {
		return w.windowQueue.Take(ctx, op)
	}
	var state limiter.State
	var decided bool
	err := w.run(ctx, write, func(db DB) (err error) {
		state, decided, err = w.takeOn(ctx, db, op)
		return err
	})
	return state, decided, err
}

func (w windows) takeOn(ctx context.Context, db DB, op limiter.Op) (limiter.State, bool, error) {
	s := w.state(op)
	var took int
	found, err := w.scanRow(ctx, db, w.sql.windowTake, []any{
		op.Name, []byte(op.Key), w.window(), w.policy.Limit, op.Cost, int64(op.MaxWait), at(op), op.Tolerance(s.Row),
	}, &took, &s.Row.Start, &s.Row.Used, &s.Now, &s.Row.At)
	s.Took = took == 1
	found = found && s.Row.At <= s.Now+op.Tolerance(s.Row)
	s.Now = max(s.Now, s.Row.At) // a clock behind the row's counts as the row's
	return s, found, err
}

func (w windows) count(ctx context.Context, op limiter.Op) (limiter.State, bool, error) {
	s := w.state(op)
	found, err := w.queryRow(ctx, write, w.sql.windowCount, []any{
		op.Name, []byte(op.Key), w.window(), w.policy.Limit, op.Cost, at(op), op.Tolerance(s.Row),
	}, &s.Row.Start, &s.Row.Used, &s.Row.At)
	s.Now = s.Row.At
	s.Took = s.Row.Start <= s.Now && s.Row.Used <= w.policy.Limit
	return s, found, err
}

func (w windows) state(op limiter.Op) limiter.State {
	return limiter.State{Tick: tickOf(op), Row: limiter.Row{Period: w.window(), Limit: w.policy.Limit}}
}

func (w windows) Look(ctx context.Context, op limiter.Op) (sqlstore.Reading, error) {
	r := sqlstore.Reading{Tick: tickOf(op)}
	_, err := w.queryRow(ctx, read, w.sql.windowLook,
		[]any{op.Name, []byte(op.Key), at(op)},
		&r.Now, &r.Row.Start, &r.Row.Used, &r.Row.At, &r.Row.Period, &r.Row.Limit)
	return r, err
}

func (w windows) Swap(ctx context.Context, op limiter.Op, from, to limiter.Row) (bool, error) {
	if from == (limiter.Row{}) {
		return w.exec(ctx, w.sql.windowInsert, op.Name, []byte(op.Key),
			to.Start, to.Used, to.At, to.Period, to.Limit)
	}
	return w.exec(ctx, w.sql.windowSwap, op.Name, []byte(op.Key),
		to.Start, to.Used, to.At, to.Period, to.Limit,
		from.Start, from.Used, from.At, from.Period, from.Limit)
}

func (w windows) Hold(ctx context.Context, op limiter.Op, f func(sqlstore.Table) error) error {
	return w.hold(ctx, w.sql.windowLock, op, func(held *Store) error {
		return f(windows{held, w.policy})
	})
}

func (w windows) Change(ctx context.Context, op limiter.Op) (bool, error) {
	switch op.Kind {
	case limiter.OpRefund:
		return w.exec(ctx, w.sql.windowRefund, op.Name, []byte(op.Key), op.Cost, at(op))
	case limiter.OpCancel:
		return w.exec(ctx, w.sql.windowCancel, op.Name, []byte(op.Key), op.Cost,
			op.Booked.Row.Start, w.window(), op.Act(), at(op))
	default: // OpReset
		return w.exec(ctx, w.sql.windowReset, op.Name, []byte(op.Key))
	}
}

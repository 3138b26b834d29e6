package postgres

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// windows is limiter_fixed_windows.
type windows struct{ *Store }

// windowOf returns op's policy, and the length of its windows.
func windowOf(op limiter.Op) (p limiter.FixedWindow, length int64) {
	p = op.Policy.(limiter.FixedWindow)
	return p, int64(p.Window)
}

func (w windows) Take(ctx context.Context, op limiter.Op) (limiter.State, bool, error) {
	if p, _ := windowOf(op); p.CountRejected {
		return w.count(ctx, op)
	}
	if w.merges(op) {
		return w.windowQueue.Take(ctx, op)
	}
	return w.take(ctx, w, op)
}

func (w windows) statements() (take, grant string) { return w.sql.windowTake, w.sql.windowGrant }

func (w windows) hot(ctx context.Context, db DB, sql string, op limiter.Op) (limiter.State, bool, error) {
	s := windowState(op)
	c := newHotCall(op, s.Row.Period, s.Row.Limit, op.Cost, int64(op.MaxWait), op.At, op.Tolerance(s.Row)).noTime(op, 7)
	found, err := w.scanRow(ctx, db, sql, c.args, c.answer(4)...)
	s.Row.Start, s.Row.Used, s.Now, s.Row.At = c.state[0], c.state[1], c.state[2], c.state[3]
	s.Took = c.took == 1
	found = found && s.Row.At <= s.Now+op.Tolerance(s.Row)
	s.Now = max(s.Now, s.Row.At) // a clock behind the row's counts as the row's
	return s, found, err
}

func (w windows) count(ctx context.Context, op limiter.Op) (limiter.State, bool, error) {
	s := windowState(op)
	found, err := w.queryRow(ctx, write, w.sql.windowCount, []any{
		op.Name, []byte(op.Key), s.Row.Period, s.Row.Limit, op.Cost, at(op), op.Tolerance(s.Row),
	}, &s.Row.Start, &s.Row.Used, &s.Row.At)
	s.Now = s.Row.At
	s.Took = s.Row.Start <= s.Now && s.Row.Used <= s.Row.Limit
	return s, found, err
}

// windowState is what there is to say before the answer of a take.
func windowState(op limiter.Op) limiter.State {
	p, length := windowOf(op)
	return limiter.State{Tick: tickOf(op), Row: limiter.Row{Period: length, Limit: p.Limit}}
}

func (w windows) read(ctx context.Context, db DB, op limiter.Op) (sqlstore.Reading, bool, error) {
	c := newHotCall(op, op.At).noTime(op, 3)
	found, err := w.scanRow(ctx, db, w.sql.windowRead, c.args, c.reading(6)...)
	row := limiter.Row{Start: c.state[1], Used: c.state[2], At: c.state[3], Period: c.state[4], Limit: c.state[5]}
	return sqlstore.Reading{Row: row, Now: c.state[0], Tick: tickOf(op)}, found, err
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
		return f(windows{held})
	})
}

func (w windows) Change(ctx context.Context, op limiter.Op) (bool, error) {
	switch op.Kind {
	case limiter.OpRefund:
		return w.exec(ctx, w.sql.windowRefund, op.Name, []byte(op.Key), op.Cost, at(op))
	case limiter.OpCancel:
		_, length := windowOf(op)
		return w.exec(ctx, w.sql.windowCancel, op.Name, []byte(op.Key), op.Cost,
			op.Booked.Row.Start, length, op.Act(), at(op))
	default: // OpReset
		return w.exec(ctx, w.sql.windowReset, op.Name, []byte(op.Key))
	}
}

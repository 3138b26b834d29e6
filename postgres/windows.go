package postgres

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// windows is limiter_fixed_windows.
type windows struct{ *Store }

// windowOf returns op's policy, and the length of its windows.
func windowOf(op limiter.Op) (p limiter.FixedWindow, length int64) {
	p = op.Policy.(limiter.FixedWindow)
	return p, int64(p.Window)
}

func (w windows) queue() *batch.Queue { return w.windowQueue }

func (w windows) statements() tableStatements {
	return tableStatements{w.sql.windowTakes, w.sql.windowLock}
}

func (w windows) take(ctx context.Context, db DB, op limiter.Op) (limiter.State, bool, error) {
	if p, _ := windowOf(op); p.CountRejected {
		return w.count(ctx, db, op)
	}
	s := windowState(op)
	c := newHotCall(op, s.Row.Period, s.Row.Limit, op.Cost, int64(op.MaxWait), op.At, op.Tolerance(s.Row)).noTime(op, 7)
	found, err := w.scanRow(ctx, db, w.sql.windowTake, c.args, c.answer(4)...)
	s.Row.Start, s.Row.Used, s.Now, s.Row.At = c.state[0], c.state[1], c.state[2], c.state[3]
	s.Took = c.took == 1
	return s, found && s.Row.At <= s.Now+op.Tolerance(s.Row), err
}

func (w windows) count(ctx context.Context, db DB, op limiter.Op) (limiter.State, bool, error) {
	s := windowState(op)
	found, err := w.scanRow(ctx, db, w.sql.windowCount, []any{
		op.Name, []byte(op.Key), s.Row.Period, s.Row.Limit, op.Cost, at(op), op.Tolerance(s.Row),
	}, &s.Row.Start, &s.Row.Used, &s.Now, &s.Row.At)
	s.Took = s.Row.Start <= s.Row.At && s.Row.Used <= s.Row.Limit
	return s, found, err
}

// windowState returns what is known of a take's state before the statement answers.
func windowState(op limiter.Op) limiter.State {
	p, length := windowOf(op)
	return limiter.State{Tick: tickOf(op), Row: limiter.Row{Period: length, Limit: p.Limit}}
}

func (w windows) look(ctx context.Context, db DB, op limiter.Op) (r reading, err error) {
	_, err = w.scanRow(ctx, db, w.sql.windowLook, []any{op.Name, []byte(op.Key), at(op)},
		&r.now, &r.row.Start, &r.row.Used, &r.row.At, &r.row.Period, &r.row.Limit)
	return r, err
}

func (w windows) swap(ctx context.Context, db DB, op limiter.Op, from, to limiter.Row) (bool, error) {
	if from == (limiter.Row{}) {
		return w.exec(ctx, db, w.sql.windowInsert, op.Name, []byte(op.Key),
			to.Start, to.Used, to.At, to.Period, to.Limit)
	}
	return w.exec(ctx, db, w.sql.windowSwap, op.Name, []byte(op.Key),
		to.Start, to.Used, to.At, to.Period, to.Limit,
		from.Start, from.Used, from.At, from.Period, from.Limit)
}

func (w windows) change(ctx context.Context, db DB, op limiter.Op) (s limiter.State, err error) {
	sql, args := w.sql.windowReset, []any{op.Name, []byte(op.Key)}
	switch op.Kind {
	case limiter.OpRefund:
		sql, args = w.sql.windowRefund, append(args, op.Cost, at(op), op.Booked.Row.Period, op.Booked.Row.Start)
	case limiter.OpCancel:
		_, length := windowOf(op)
		sql, args = w.sql.windowCancel, append(args, op.Cost, op.Booked.Row.Start, length, op.Act(), at(op))
	default:
	}
	s.Took, err = w.scanRow(ctx, db, sql, args, &s.Row.Start, &s.Row.Used, &s.Row.At, &s.Row.Period, &s.Row.Limit)
	return s, err
}

func (w windows) numbers(op *limiter.Op) (period, limit, cost int64) {
	p, length := windowOf(*op)
	return length, p.Limit, op.Cost
}

func (windows) columns(s *limiter.State) []any {
	return []any{&s.Row.Start, &s.Row.Used, &s.Now, &s.Row.At}
}

func (windows) earlier(op *limiter.Op, s limiter.State, behind int64) limiter.State {
	s.Row.Used -= behind * op.Cost
	return s
}

package postgres

import "github.com/sqlimit/limiter"

// windows is limiter_fixed_windows.
var windows = table{
	name:    "limiter_fixed_windows",
	kind:    "window",
	columns: []string{"window_start", "used", "at", "win", "lim"},
	end:     "window_start + win",
	counts:  true,
	fields: func(to []any, row *limiter.Row) []any {
		return append(to, &row.Start, &row.Used, &row.At, &row.Period, &row.Limit)
	},
	numbers: func(op *limiter.Op) (period, limit, cost int64) {
		p, length := windowOf(op)
		return length, p.Limit, op.Cost
	},
	takeStatement: func(sql *tableStatements, op *limiter.Op) (text string, more []int64) {
		p, length := windowOf(op)
		ahead := op.Tolerance(limiter.Row{Period: length, Limit: p.Limit})
		switch {
		case op.Kind == limiter.OpCharge:
			return sql.count, []int64{ahead, 1}
		case p.CountRejected:
			return sql.count, []int64{ahead, 0}
		}
		return sql.take, []int64{ahead, int64(op.MaxWait)}
	},
	charged: func(_ *limiter.Op, s *limiter.State) (charged, room bool) { return true, s.Took },
	refund: func(op *limiter.Op) []any {
		return []any{op.Cost, at(op), op.Booked.Row.Period, op.Booked.Row.Start}
	},
	cancel: func(op *limiter.Op) []any {
		_, length := windowOf(op)
		return []any{op.Cost, op.Booked.Row.Start, length, op.Act(), at(op)}
	},
	earlier: func(op *limiter.Op, row limiter.Row, behind int64) limiter.Row {
		row.Used -= behind * op.Cost
		return row
	},
}

// windowOf returns op's policy, and the length of its windows.
func windowOf(op *limiter.Op) (p limiter.FixedWindow, length int64) {
	p = op.Policy.(limiter.FixedWindow)
	return p, int64(p.Window)
}

package postgres

import (
	"sort"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/tables"
)

// kind says what the statements of one kind of policy take, beside what internal/tables says. Only take
// is needed: without another statement, [Store.settle] decides. See DESIGN.md, "What a kind costs".
type kind struct {
	// take returns the statement of a single take, and its arguments after the time.
	take func(sql *tableStatements, op *limiter.Op, n tables.Numbers) (text string, more []int64)
	// takesUnits reports whether the statement of a single take grants several units. Their number is its
	// last argument. Such a statement books nothing ahead.
	takesUnits bool
	// reach is how much a row may have taken after op: for a bucket, how far ahead of the clock it may be
	// full. It is nil if no statement takes from several keys.
	reach func(op *limiter.Op, n tables.Numbers) int64
	// charged reports what the statement of a charge did: whether it charged op, and whether there was
	// room for it. It is nil if no statement of take can carry out a charge.
	charged func(op *limiter.Op, s *limiter.State) (charged, room bool)
	// room returns the instant at which row, which has op's policy, has room for op. Citus needs it.
	room func(op *limiter.Op, row *limiter.Row) int64
	// refund and cancel return the arguments of their statements after the key.
	refund, cancel func(op *limiter.Op) []any
}

var kinds = map[limiter.PolicyKind]kind{
	limiter.KindBucket: {
		take: func(sql *tableStatements, op *limiter.Op, n tables.Numbers) (text string, more []int64) {
			return sql.take, []int64{bucketReach(op, n)}
		},
		reach: bucketReach,
		charged: func(_ *limiter.Op, s *limiter.State) (charged, room bool) {
			return s.Took, s.Row.FullAt <= s.Now+s.Row.Limit*s.Row.Period
		},
		room: func(op *limiter.Op, row *limiter.Row) int64 {
			return row.FullAt - (row.Limit-op.Cost)*row.Period
		},
		refund: func(op *limiter.Op) []any { return []any{op.Cost, at(op)} },
		cancel: func(op *limiter.Op) []any {
			p := op.Policy.(limiter.TokenBucket)
			step := int64(p.Step())
			return []any{op.Cost * step, op.Booked.Row.FullAt, step, p.Capacity, op.Act(), at(op)}
		},
	},
	limiter.KindWindow: {
		take: func(sql *tableStatements, op *limiter.Op, n tables.Numbers) (text string, more []int64) {
			ahead := op.Tolerance(limiter.Row{At: n.Start, Period: n.Period, Limit: n.Limit})
			switch {
			case op.Kind == limiter.OpCharge:
				return sql.count, []int64{ahead, 1}
			case op.CountsRefusals():
				return sql.count, []int64{ahead, 0}
			}
			return sql.take, []int64{ahead, int64(op.MaxWait)}
		},
		reach: func(op *limiter.Op, n tables.Numbers) int64 {
			if op.Kind == limiter.OpCharge {
				return maxCharge
			}
			return n.Limit
		},
		charged: func(_ *limiter.Op, s *limiter.State) (charged, room bool) { return true, s.Row.Used <= s.Row.Limit },
		room: func(op *limiter.Op, row *limiter.Row) int64 {
			if row.Used+op.Cost <= row.Limit {
				return row.Start
			}
			return row.Start + row.Period
		},
		refund: func(op *limiter.Op) []any {
			return []any{op.Cost, at(op), op.Booked.Row.Period, op.Booked.Row.Start}
		},
		cancel: func(op *limiter.Op) []any {
			return []any{op.Cost, op.Booked.Row.Start, op.Booked.Row.Period, op.Act(), at(op)}
		},
	},
	limiter.KindSliding: {
		take: func(sql *tableStatements, op *limiter.Op, n tables.Numbers) (text string, more []int64) {
			return sql.take, []int64{op.Tolerance(limiter.Row{Period: n.Period, Limit: n.Limit})}
		},
		takesUnits: true,
		room: func(op *limiter.Op, row *limiter.Row) int64 {
			sums := rowlist.Numbers(row.List)
			most := func(d int) bool { return sums[d] >= sums[len(sums)-1]+op.Cost-row.Limit }
			return row.Start + int64(sort.Search(len(sums), most))*row.Period
		},
	},
}

// bucketReach returns how far ahead of the clock a bucket may be full after op.
func bucketReach(op *limiter.Op, n tables.Numbers) int64 {
	if op.Kind == limiter.OpCharge {
		return maxCharge
	}
	return n.Limit*n.Period + int64(op.MaxWait)
}

// maxCharge is how far the statements charge a row: in nanoseconds ahead of the clock, or in units of a window.
// A count below it and a cost of as much add up without an overflow. If it is too little, [limiter.Op.Apply] decides.
const maxCharge = 1 << 60

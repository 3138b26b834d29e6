package postgres

import "github.com/sqlimit/limiter"

// buckets is limiter_token_buckets.
var buckets = table{
	name:    "limiter_token_buckets",
	kind:    "bucket",
	columns: []string{"full_at", "at", "step", "capacity"},
	end:     "full_at",
	fields: func(to []any, row *limiter.Row) []any {
		return append(to, &row.FullAt, &row.At, &row.Period, &row.Limit)
	},
	numbers: func(op *limiter.Op) (period, limit, cost int64) {
		p, step := bucketOf(op)
		return step, p.Capacity, op.Cost * step
	},
	takeStatement: func(sql *tableStatements, op *limiter.Op) (text string, more []int64) {
		p, step := bucketOf(op)
		if op.Kind == limiter.OpCharge {
			return sql.take, []int64{maxDebt}
		}
		return sql.take, []int64{p.Capacity*step + int64(op.MaxWait)}
	},
	charged: func(op *limiter.Op, s *limiter.State) (charged, room bool) {
		p, step := bucketOf(op)
		return s.Took, s.Row.FullAt <= s.Now+p.Capacity*step
	},
	refund: func(op *limiter.Op) []any { return []any{op.Cost, at(op)} },
	cancel: func(op *limiter.Op) []any {
		p, step := bucketOf(op)
		return []any{op.Cost * step, op.Booked.Row.FullAt, step, p.Capacity, op.Act(), at(op)}
	},
	earlier: func(op *limiter.Op, row limiter.Row, behind int64) limiter.Row {
		_, step := bucketOf(op)
		row.FullAt -= behind * op.Cost * step
		return row
	},
}

// maxDebt is how far ahead of the clock a charge can put the instant at which a bucket is full, in
// nanoseconds. If that is not far enough, [limiter.Op.Apply] decides.
const maxDebt = 1 << 60

// bucketOf returns op's policy, and the time of one token.
func bucketOf(op *limiter.Op) (p limiter.TokenBucket, step int64) {
	p = op.Policy.(limiter.TokenBucket)
	return p, int64(p.Step())
}

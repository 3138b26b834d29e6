package postgres

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// tick is the resolution of PostgreSQL's clock in nanoseconds.
const tick = 1000

// buckets is limiter_token_buckets.
type buckets struct{ *Store }

// bucketOf returns op's policy, and the time of one token.
func bucketOf(op limiter.Op) (p limiter.TokenBucket, step int64) {
	p = op.Policy.(limiter.TokenBucket)
	return p, int64(p.Step())
}

func (b buckets) queue() *batch.Queue { return b.bucketQueue }

func (b buckets) statements() tableStatements {
	return tableStatements{b.sql.bucketTakes, b.sql.bucketLock}
}

func (b buckets) take(ctx context.Context, db DB, op limiter.Op) (limiter.State, bool, error) {
	p, step := bucketOf(op)
	c := newHotCall(op, step, p.Capacity, op.Cost*step, p.Capacity*step+int64(op.MaxWait), op.At).noTime(op, 7)
	found, err := b.scanRow(ctx, db, b.sql.bucketTake, c.args, c.answer(3)...)
	s := limiter.State{Tick: tickOf(op), Took: c.took == 1, Now: c.state[1]}
	s.Row = limiter.Row{FullAt: c.state[0], At: c.state[2], Period: step, Limit: p.Capacity}
	return s, found && s.Row.At <= s.Now+op.Tolerance(s.Row), err
}

func (b buckets) look(ctx context.Context, db DB, op limiter.Op) (r reading, err error) {
	_, err = b.scanRow(ctx, db, b.sql.bucketLook, []any{op.Name, []byte(op.Key), at(op)},
		&r.now, &r.row.FullAt, &r.row.At, &r.row.Period, &r.row.Limit)
	return r, err
}

func (b buckets) swap(ctx context.Context, db DB, op limiter.Op, from, to limiter.Row) (bool, error) {
	if from == (limiter.Row{}) {
		return b.exec(ctx, db, b.sql.bucketInsert, op.Name, []byte(op.Key),
			to.FullAt, to.At, to.Period, to.Limit)
	}
	return b.exec(ctx, db, b.sql.bucketSwap, op.Name, []byte(op.Key),
		to.FullAt, to.At, to.Period, to.Limit,
		from.FullAt, from.At, from.Period, from.Limit)
}

func (b buckets) change(ctx context.Context, db DB, op limiter.Op) (s limiter.State, err error) {
	p, step := bucketOf(op)
	sql, args := b.sql.bucketReset, []any{op.Name, []byte(op.Key)}
	switch op.Kind {
	case limiter.OpRefund:
		sql, args = b.sql.bucketRefund, append(args, op.Cost, at(op))
	case limiter.OpCancel:
		sql, args = b.sql.bucketCancel, append(args, op.Cost*step, op.Booked.Row.FullAt, step, p.Capacity, op.Act(), at(op))
	default:
	}
	s.Took, err = b.scanRow(ctx, db, sql, args, &s.Row.FullAt, &s.Row.At, &s.Row.Period, &s.Row.Limit)
	return s, err
}

func (b buckets) numbers(op *limiter.Op) (period, limit, cost int64) {
	p, step := bucketOf(*op)
	return step, p.Capacity, op.Cost * step
}

func (buckets) columns(s *limiter.State) []any {
	return []any{&s.Row.FullAt, &s.Now, &s.Row.At}
}

func (buckets) earlier(op *limiter.Op, s limiter.State, behind int64) limiter.State {
	_, step := bucketOf(*op)
	s.Row.FullAt -= behind * op.Cost * step
	return s
}

// at returns the operation's own time, or NULL.
func at(op limiter.Op) any {
	if op.At == 0 {
		return nil
	}
	return op.At
}

// tickOf is the resolution of the clock that decides op, in nanoseconds.
func tickOf(op limiter.Op) int64 {
	if op.At == 0 {
		return tick
	}
	return 1
}

package postgres

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
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

func (b buckets) Take(ctx context.Context, op limiter.Op) (limiter.State, bool, error) {
	if b.merges(op) {
		return b.bucketQueue.Take(ctx, op)
	}
	return b.take(ctx, b, op)
}

func (b buckets) statements() (take, grant string) { return b.sql.bucketTake, b.sql.bucketGrant }

func (b buckets) hot(ctx context.Context, db DB, sql string, op limiter.Op) (limiter.State, bool, error) {
	p, step := bucketOf(op)
	c := newHotCall(op, step, p.Capacity, op.Cost*step, p.Capacity*step+int64(op.MaxWait), op.At).noTime(op, 7)
	found, err := b.scanRow(ctx, db, sql, c.args, c.answer(3)...)
	s := limiter.State{Tick: tickOf(op), Took: c.took == 1, Now: c.state[1]}
	s.Row = limiter.Row{FullAt: c.state[0], At: c.state[2], Period: step, Limit: p.Capacity}
	return s, found && s.Row.At <= s.Now+op.Tolerance(s.Row), err
}

func (b buckets) read(ctx context.Context, db DB, op limiter.Op) (sqlstore.Reading, bool, error) {
	c := newHotCall(op, op.At).noTime(op, 3)
	found, err := b.scanRow(ctx, db, b.sql.bucketRead, c.args, c.reading(5)...)
	row := limiter.Row{FullAt: c.state[1], At: c.state[2], Period: c.state[3], Limit: c.state[4]}
	return sqlstore.Reading{Row: row, Now: c.state[0], Tick: tickOf(op)}, found, err
}

func (b buckets) Look(ctx context.Context, op limiter.Op) (sqlstore.Reading, error) {
	r := sqlstore.Reading{Tick: tickOf(op)}
	_, err := b.queryRow(ctx, read, b.sql.bucketLook,
		[]any{op.Name, []byte(op.Key), at(op)},
		&r.Now, &r.Row.FullAt, &r.Row.At, &r.Row.Period, &r.Row.Limit)
	return r, err
}

func (b buckets) Swap(ctx context.Context, op limiter.Op, from, to limiter.Row) (bool, error) {
	if from == (limiter.Row{}) {
		return b.exec(ctx, b.sql.bucketInsert, op.Name, []byte(op.Key),
			to.FullAt, to.At, to.Period, to.Limit)
	}
	return b.exec(ctx, b.sql.bucketSwap, op.Name, []byte(op.Key),
		to.FullAt, to.At, to.Period, to.Limit,
		from.FullAt, from.At, from.Period, from.Limit)
}

func (b buckets) Hold(ctx context.Context, op limiter.Op, f func(sqlstore.Table) error) error {
	return b.hold(ctx, b.sql.bucketLock, op, func(held *Store) error {
		return f(buckets{held})
	})
}

func (b buckets) Change(ctx context.Context, op limiter.Op) (bool, error) {
	p, step := bucketOf(op)
	switch op.Kind {
	case limiter.OpRefund:
		return b.exec(ctx, b.sql.bucketRefund, op.Name, []byte(op.Key), op.Cost, at(op))
	case limiter.OpCancel:
		return b.exec(ctx, b.sql.bucketCancel, op.Name, []byte(op.Key), op.Cost*step,
			op.Booked.Row.FullAt, step, p.Capacity, op.Act(), at(op))
	default: // OpReset
		return b.exec(ctx, b.sql.bucketReset, op.Name, []byte(op.Key))
	}
}

// at is the operation's own time, or NULL.
func at(op limiter.Op) any {
	if op.At == 0 {
		return nil
	}
	return op.At
}

// tickOf is the resolution of the clock that decides op.
func tickOf(op limiter.Op) int64 {
	if op.At == 0 {
		return tick
	}
	return 1
}

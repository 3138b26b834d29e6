package sqlite

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// buckets is the table limiter_token_buckets under one policy.
type buckets struct {
	store  *Store
	policy limiter.TokenBucket
}

// Take refuses from a snapshot, or decides and writes in one statement.
func (b buckets) Take(ctx context.Context, op limiter.Op) (limiter.State, bool, error) {
	if s, refused, err := refuse(ctx, b, op); refused || err != nil {
		return s, refused, err
	}
	step := int64(b.policy.Step())
	spend, reach := op.Cost*step, b.policy.Capacity*step+int64(op.MaxWait)
	var now, fullAt int64
	var granted bool
	err := b.store.write(ctx, func(ctx context.Context, p *pool) (err error) {
		// The clock is read when it is our turn: readings are then mostly in the order of takes.
		if now, err = op.Clock(b.store.now); err != nil {
			return err
		}
		granted, err = p.row(ctx, "bucket_take", []any{&fullAt},
			op.Name, []byte(op.Key), now, step, b.policy.Capacity, spend, reach)
		return err
	})
	if !granted || err != nil {
		return limiter.State{}, false, err
	}
	row := limiter.Row{FullAt: fullAt, At: now, Period: step, Limit: b.policy.Capacity}
	return limiter.State{Row: row, Now: now, Tick: tick, Took: true}, true, nil
}

// Look reads the row and then the clock.
func (b buckets) Look(ctx context.Context, op limiter.Op) (sqlstore.Reading, error) {
	var r limiter.Row
	dest := []any{&r.FullAt, &r.At, &r.Period, &r.Limit}
	now, found, err := b.store.look(ctx, op, "bucket_row", dest)
	if !found {
		r = limiter.Row{}
	}
	return sqlstore.Reading{Row: r, Now: now, Tick: tick}, err
}

// Swap writes to where from still stands.
func (b buckets) Swap(ctx context.Context, op limiter.Op, from, to limiter.Row) (bool, error) {
	return b.store.change(ctx, op, func(int64) (statement, []any) {
		args := []any{op.Name, []byte(op.Key), to.FullAt, to.At, to.Period, to.Limit}
		if from == (limiter.Row{}) {
			return "bucket_insert", args
		}
		return "bucket_swap", append(args, from.FullAt, from.At, from.Period, from.Limit)
	})
}

// Hold locks the whole database for writers: SQLite has no smaller lock.
func (b buckets) Hold(ctx context.Context, _ limiter.Op, f func(sqlstore.Table) error) error {
	return b.store.hold(ctx, "bucket_lock", func(held *Store) error {
		return f(buckets{held, b.policy})
	})
}

// Change carries out a refund, cancel or reset.
func (b buckets) Change(ctx context.Context, op limiter.Op) (bool, error) {
	return b.store.change(ctx, op, func(now int64) (statement, []any) {
		args := []any{op.Name, []byte(op.Key)}
		switch op.Kind {
		case limiter.OpRefund:
			return "bucket_refund", append(args, now, op.Cost)
		case limiter.OpCancel:
			return "bucket_cancel", append(args, now, int64(b.policy.Step()), b.policy.Capacity,
				op.Cost, op.Booked.Row.FullAt, op.Act())
		default: // OpReset
			return "bucket_reset", args
		}
	})
}

package sqlite

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// windows is the table limiter_fixed_windows under one policy.
type windows struct {
	store  *Store
	policy limiter.FixedWindow
}

// Take refuses from a snapshot, or decides and writes in one statement. Where refusals count, it
// always writes.
func (w windows) Take(ctx context.Context, op limiter.Op) (limiter.State, bool, error) {
	st := statement("window_take")
	row := limiter.Row{Period: int64(w.policy.Window), Limit: w.policy.Limit}
	args := []any{op.Name, []byte(op.Key), int64(0), row.Period, row.Limit, op.Cost, op.Tolerance(row)}
	if w.policy.CountRejected {
		st = "window_count"
	} else {
		if s, refused, err := refuse(ctx, w, op); refused || err != nil {
			return s, refused, err
		}
		args = append(args, int64(op.MaxWait))
	}
	dest := []any{&row.Start, &row.Used, &row.At}
	var decided bool
	err := w.store.write(ctx, func(ctx context.Context, p *pool) error {
		// The clock is read when it is our turn: readings are then mostly in the order of takes.
		now, err := op.Clock(w.store.now)
		if err != nil {
			return err
		}
		args[2] = now
		decided, err = p.row(ctx, st, dest, args...)
		return err
	})
	if !decided || err != nil {
		return limiter.State{}, false, err
	}
	// What window_take returns it has granted, also in a window ahead.
	took := !w.policy.CountRejected || row.Start <= row.At && row.Used <= row.Limit
	return limiter.State{Row: row, Now: row.At, Tick: tick, Took: took}, true, nil
}

// Look reads the row and then the clock.
func (w windows) Look(ctx context.Context, op limiter.Op) (sqlstore.Reading, error) {
	var r limiter.Row
	dest := []any{&r.Start, &r.Used, &r.At, &r.Period, &r.Limit}
	now, found, err := w.store.look(ctx, op, "window_row", dest)
	if !found {
		r = limiter.Row{}
	}
	return sqlstore.Reading{Row: r, Now: now, Tick: tick}, err
}

// Swap writes to where from still stands.
func (w windows) Swap(ctx context.Context, op limiter.Op, from, to limiter.Row) (bool, error) {
	return w.store.change(ctx, op, func(int64) (statement, []any) {
		args := []any{op.Name, []byte(op.Key), to.Start, to.Used, to.At, to.Period, to.Limit}
		if from == (limiter.Row{}) {
			return "window_insert", args
		}
		return "window_swap", append(args, from.Start, from.Used, from.At, from.Period, from.Limit)
	})
}

// Hold locks the whole database for writers: SQLite has no smaller lock.
func (w windows) Hold(ctx context.Context, _ limiter.Op, f func(sqlstore.Table) error) error {
	return w.store.hold(ctx, "window_lock", func(held *Store) error {
		return f(windows{held, w.policy})
	})
}

// Change carries out a refund, cancel or reset.
func (w windows) Change(ctx context.Context, op limiter.Op) (bool, error) {
	return w.store.change(ctx, op, func(now int64) (statement, []any) {
		args := []any{op.Name, []byte(op.Key)}
		switch op.Kind {
		case limiter.OpRefund:
			return "window_refund", append(args, now, op.Cost)
		case limiter.OpCancel:
			return "window_cancel", append(args, now, int64(w.policy.Window),
				op.Cost, op.Booked.Row.Start, op.Act())
		default: // OpReset
			return "window_reset", args
		}
	})
}

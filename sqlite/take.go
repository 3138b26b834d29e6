package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/sqlimit/limiter"
)

// takeOne takes by an UPSERT, which decides, in a transaction that has read the row. So the row
// that it leaves is known. If granted is false, nothing was written, and [limiter.Op.Apply]
// decides.
func takeOne(ctx context.Context, tx transaction, t *table, op *limiter.Op, now int64, key []any) (granted bool, err error) {
	if op.Kind != limiter.OpTake || t.take == nil {
		return false, nil
	}
	st, args := t.take(op, now, 1, key)
	changed, err := tx.exec(ctx, st.silent(), args...)
	return changed > 0, err
}

// takeUnits takes units of op by one UPSERT, which decides, and returns the row that it left. If
// granted is false, nothing was written, and [limiter.Op.Apply] decides.
func (w *writeTx) takeUnits(ctx context.Context, t *table, op *limiter.Op, now, units int64) (row limiter.Row, granted bool, err error) {
	n := t.Numbers(op, now)
	// Units that may wait could have to wait for different windows. More units than the limit would be
	// too many for a key without a row, which the UPSERT inserts unconditionally.
	if op.Kind != limiter.OpTake || t.take == nil || units > 1 && (t.Add == nil || op.MaxWait > 0) || op.Cost > n.Limit/units {
		return row, false, nil
	}
	fields := t.Fields(nil, &row)
	st, args := t.take(op, now, units, keyArgs(op))
	err = w.tx.query(ctx, st, func(columns []driver.Value) error {
		granted = true
		return scan(columns, fields[:len(fields)-t.PolicyColumns]...)
	}, args...)
	row.Period, row.Limit = n.Period, n.Limit
	return row, granted, err
}

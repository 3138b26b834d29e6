package postgres

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// table runs the statements on one of the two tables. Each runs on the connection or transaction
// db. Its error has no class yet: see [Store.interpretError].
type table interface {
	// queue returns the queue of the table, nil if the Store does not run on a pool.
	queue() *batch.Queue
	statements() tableStatements

	// take carries out a single take by one statement. It decides only if the row has op's policy
	// and is not ahead of the clock. Otherwise it writes nothing.
	take(ctx context.Context, db DB, op limiter.Op) (s limiter.State, decided bool, err error)
	// look reads the row, the zero Row if there is none, and the clock.
	look(ctx context.Context, db DB, op limiter.Op) (reading, error)
	// swap replaces the row from, the zero Row if there was none, by to. It reports false if the
	// row has changed.
	swap(ctx context.Context, db DB, op limiter.Op, from, to limiter.Row) (bool, error)
	// change carries out a single refund, cancel or reset. The state has the row only if it took.
	change(ctx context.Context, db DB, op limiter.Op) (limiter.State, error)

	// numbers returns the two columns of op's policy, and op's cost as the statements take it.
	numbers(op *limiter.Op) (period, limit, cost int64)
	// columns returns the fields of s for the columns that the merged statement returns.
	columns(s *limiter.State) []any
	// earlier returns the state before the last units of op, as many as behind; s is the state after.
	earlier(op *limiter.Op, s limiter.State, behind int64) limiter.State
}

// tableStatements are the texts of the statements on a table that the [Store] chooses.
type tableStatements struct{ merged, lock string }

// reading is a row and the clock, read by one statement.
type reading struct {
	row limiter.Row
	now int64
}

// apply is op.Apply on row at the time of the reading, or at op's own time. For a refund, cancel or
// reset it returns what the statement for a single one returns.
func (r reading) apply(row limiter.Row, op limiter.Op) (limiter.Row, limiter.State) {
	now := r.now
	if op.At != 0 {
		now = op.At
	}
	next, s := op.Apply(row, now)
	switch {
	case op.Kind == limiter.OpTake || op.Kind == limiter.OpLook:
		s.Tick = tickOf(op)
	case s.Took:
		s = limiter.State{Took: true, Row: next}
	default:
		s = limiter.State{}
	}
	return next, s
}

// tableOf returns the table of a policy's kind.
func (s *Store) tableOf(policy limiter.Policy) (table, error) {
	switch policy.(type) {
	case limiter.TokenBucket:
		return buckets{s}, nil
	case limiter.FixedWindow:
		return windows{s}, nil
	}
	return nil, unsupported("policy %T", policy)
}

// checkKind returns an error for an operation that the Store does not know.
func checkKind(kind limiter.OpKind) error {
	if kind < limiter.OpTake || kind > limiter.OpReset {
		return unsupported("operation %d", kind)
	}
	return nil
}

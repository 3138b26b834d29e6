package postgres

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// table describes one of the two tables: its columns, and how its statements differ from those of
// the other. Its values are [buckets] and [windows].
type table struct {
	name    string   // without the schema
	kind    string   // the beginning of the names of its own files
	columns []string // of a row beside limiter, key and granted; the last two are the policy's
	end     string   // SQL: when a row is as if never used
	counts  bool     // it has a statement for windows that count refusals

	// fields appends the fields of a row, in the order of columns.
	fields func(to []any, row *limiter.Row) []any
	// numbers returns the two columns of op's policy, and op's cost as the statements take it.
	numbers func(op *limiter.Op) (period, limit, cost int64)
	// takeStatement returns the statement of a single take, and its arguments after the time.
	takeStatement func(sql *tableStatements, op *limiter.Op) (text string, more []int64)
	// refund and cancel return the arguments of their statements after the key.
	refund, cancel func(op *limiter.Op) []any
	// charged reports what the statement of a charge did: whether it charged op, and whether there was
	// room for it.
	charged func(op *limiter.Op, s *limiter.State) (charged, room bool)
	// earlier returns the row before the last units of op, as many as behind; row is the one after.
	earlier func(op *limiter.Op, row limiter.Row, behind int64) limiter.Row

	sql   tableStatements // rendered for a Store
	queue *batch.Queue    // nil if the Store does not run on a pool
}

// policyColumns is how many columns hold the policy: those of [limiter.Row].Period and Limit.
const policyColumns = 2

// open returns t with its statements and, if the Store runs on a pool, its queue.
func (s *Store) open(t table) *table {
	t.sql = s.statements(&t)
	if s.db == nil {
		t.queue = s.newQueue(&t)
	}
	return &t
}

// tableOf returns the table of a policy's kind.
func (s *Store) tableOf(policy limiter.Policy) (*table, error) {
	switch policy.(type) {
	case limiter.TokenBucket:
		return s.buckets, nil
	case limiter.FixedWindow:
		return s.windows, nil
	}
	return nil, unsupported("policy %T", policy)
}

// checkKind returns an error for an operation that the Store does not know.
func checkKind(kind limiter.OpKind) error {
	if kind < limiter.OpTake || kind > limiter.OpBlock {
		return unsupported("operation %d", kind)
	}
	return nil
}

// The following methods run one statement on the connection or transaction db. Their errors have no
// class yet: see [Store.interpretError].

// readRow reads the row, the zero Row if there is none, and the clock.
func (s *Store) readRow(ctx context.Context, db DB, t *table, op *limiter.Op) (reading, error) {
	r, err := s.readRowByNodeClock(ctx, db, t, op)
	if err == nil && s.citus && op.At == 0 {
		err = s.coordinatorClock(ctx, db, t, &r)
	}
	return r, err
}

// readRowByNodeClock is readRow, by the clock of the server that holds the row.
func (s *Store) readRowByNodeClock(ctx context.Context, db DB, t *table, op *limiter.Op) (r reading, err error) {
	_, err = s.scanRow(ctx, db, t.sql.read, []any{op.Name, []byte(op.Key)},
		t.fields([]any{&r.now}, &r.row)...)
	return r, err
}

// swap replaces the row from, the zero Row if there was none, by to. It reports false if the row
// has changed.
func (s *Store) swap(ctx context.Context, db DB, t *table, op *limiter.Op, from, to limiter.Row) (bool, error) {
	if from == (limiter.Row{}) {
		return s.exec(ctx, db, t.sql.insert, t.fields([]any{op.Name, []byte(op.Key)}, &to)...)
	}
	return s.exec(ctx, db, t.sql.swap, t.swapArgs(op, from, to)...)
}

// swapArgs returns the arguments of the statement that replaces a row.
func (t *table) swapArgs(op *limiter.Op, from, to limiter.Row) []any {
	return t.fields(t.fields([]any{op.Name, []byte(op.Key)}, &to), &from)
}

// giveBackOne carries out a single refund, cancel or reset. The state has the row only if it took.
func (s *Store) giveBackOne(ctx context.Context, db DB, t *table, op *limiter.Op) (state limiter.State, err error) {
	sql, args := t.giveBackStatement(op)
	state.Took, err = s.scanRow(ctx, db, sql, args, t.fields(nil, &state.Row)...)
	return state, err
}

// giveBackStatement returns the statement of a refund, cancel or reset.
func (t *table) giveBackStatement(op *limiter.Op) (sql string, args []any) {
	args = []any{op.Name, []byte(op.Key)}
	switch op.Kind {
	case limiter.OpRefund:
		return t.sql.refund, append(args, t.refund(op)...)
	case limiter.OpCancel:
		return t.sql.cancel, append(args, t.cancel(op)...)
	default:
		return t.sql.reset, args
	}
}

// reading is a row and the clock, read by one statement.
type reading struct {
	row limiter.Row
	now int64
}

// apply applies a take or a look to row, at the time of the reading or at op's own.
func (r reading) apply(row limiter.Row, op limiter.Op) (limiter.Row, limiter.State) {
	now := r.now
	if op.At != 0 {
		now = op.At
	}
	next, s := op.Apply(row, now)
	s.Tick = tickOf(&op)
	return next, s
}

// tick is the resolution of PostgreSQL's clock in nanoseconds.
const tick = 1000

// tickOf returns the resolution of the clock that decides op.
func tickOf(op *limiter.Op) int64 {
	if op.At == 0 {
		return tick
	}
	return 1
}

// at returns the operation's own time, or NULL.
func at(op *limiter.Op) any {
	if op.At == 0 {
		return nil
	}
	return op.At
}

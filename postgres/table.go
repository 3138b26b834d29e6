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
	// take returns the statement of a single take, and its arguments after the time.
	take func(sql *tableStatements, op *limiter.Op) (text string, more []int64)
	// refund and cancel return the arguments of their statements after the key.
	refund, cancel func(op *limiter.Op) []any
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
	if kind < limiter.OpTake || kind > limiter.OpReset {
		return unsupported("operation %d", kind)
	}
	return nil
}

// The following methods run one statement on the connection or transaction db. Their errors have no
// class yet: see [Store.interpretError].

// take carries out a single take. It decides only if the row has op's policy and is not ahead of the
// clock. Otherwise it writes nothing.
func (s *Store) take(ctx context.Context, db DB, t *table, op *limiter.Op) (state limiter.State, decided bool, err error) {
	c := newTakeCall(t, op)
	found, err := s.scanRow(ctx, db, c.sql, c.args, c.columns...)
	c.answer.decide(t, op)
	return c.answer.state, found && c.answer.decided, err
}

// look reads the row, the zero Row if there is none, and the clock.
func (s *Store) look(ctx context.Context, db DB, t *table, op *limiter.Op) (reading, error) {
	r, err := s.readRow(ctx, db, t, op)
	if err == nil && s.citus && op.At == 0 {
		err = s.coordinatorClock(ctx, db, t, &r)
	}
	return r, err
}

// readRow is look, by the clock of the server that holds the row.
func (s *Store) readRow(ctx context.Context, db DB, t *table, op *limiter.Op) (r reading, err error) {
	_, err = s.scanRow(ctx, db, t.sql.look, []any{op.Name, []byte(op.Key)},
		t.fields([]any{&r.now}, &r.row)...)
	return r, err
}

// swap replaces the row from, the zero Row if there was none, by to. It reports false if the row has
// changed.
func (s *Store) swap(ctx context.Context, db DB, t *table, op *limiter.Op, from, to limiter.Row) (bool, error) {
	args := t.fields([]any{op.Name, []byte(op.Key)}, &to)
	if from == (limiter.Row{}) {
		return s.exec(ctx, db, t.sql.insert, args...)
	}
	return s.exec(ctx, db, t.sql.swap, t.fields(args, &from)...)
}

// giveBackOne carries out a single refund, cancel or reset. The state has the row only if it took.
func (s *Store) giveBackOne(ctx context.Context, db DB, t *table, op *limiter.Op) (state limiter.State, err error) {
	sql, args := t.giveBack(op)
	state.Took, err = s.scanRow(ctx, db, sql, args, t.fields(nil, &state.Row)...)
	return state, err
}

// giveBack returns the statement of a refund, cancel or reset.
func (t *table) giveBack(op *limiter.Op) (sql string, args []any) {
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

// answer is what the statement of a take returns for a key.
type answer struct {
	granted int64 // units
	state   limiter.State
	decided bool
}

// columns appends the columns of the answer: granted, now, and those of the row without the policy.
func (a *answer) columns(to []any, t *table) []any {
	to = t.fields(append(to, &a.granted, &a.state.Now), &a.state.Row)
	return to[:len(to)-policyColumns]
}

// decide adds what the statement does not return. The answer does not decide if the row is ahead of
// the clock.
func (a *answer) decide(t *table, op *limiter.Op) {
	s := &a.state
	s.Tick, s.Took = tickOf(op), a.granted > 0
	s.Row.Period, s.Row.Limit, _ = t.numbers(op)
	a.decided = s.Row.At <= s.Now+op.Tolerance(s.Row)
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

package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/tables"
)

// table is the table of one kind of policy, with the Store's statements on it.
type table struct {
	*tables.Table
	kind
	calendar bool         // its statements are those of a calendar
	pages    atomic.Int64 // that the next statement of a sweep covers
	sql      tableStatements
	units    bool         // a statement can grant several equal takes of a key
	queue    *batch.Queue // nil if the Store does not run on a pool
}

// open returns the table that description describes, with its statements and, if the Store runs on a pool,
// its queue. The statements are those of a calendar, or of the other policies.
func (s *Store) open(description *tables.Table, calendar bool) *table {
	t := &table{Table: description, kind: kinds[description.Kind], calendar: calendar, sql: s.onTable(description, calendar)}
	t.units = t.Add != nil && (s.citus || t.sql.takes != "" || t.takesUnits)
	t.pages.Store(firstRange)
	if s.db == nil {
		t.queue = s.newQueue(t)
	}
	return t
}

// merges reports whether equal operations like op can be units of one row of a statement. A take of up to its
// cost is as many units of 1.
func (t *table) merges(op *limiter.Op) bool {
	switch op.Kind {
	case limiter.OpTakeUpTo:
		return t.units
	case limiter.OpCharge:
		return t.sql.takes != "" && op.Cost > 0 && op.Cost <= maxCharge
	}
	return t.units && hasUnits(op)
}

// hasUnits reports whether op is a take that a statement by units can carry out. It must book nothing ahead,
// because such a statement has no room for its wait. A take that costs nothing has no units.
func hasUnits(op *limiter.Op) bool {
	return op.Kind == limiter.OpTake && op.MaxWait == 0 && op.Cost > 0 && !op.CountsRefusals()
}

// tableOf returns the table of a policy's kind. Calendars share the rows of fixed windows, but not the
// statements.
func (s *Store) tableOf(policy limiter.Policy) *table {
	i := limiter.KindOf(policy) - 1
	if isCalendar := tables.All[i].IsCalendar; isCalendar != nil && isCalendar(policy) {
		return s.calendars()
	}
	return s.tables[i]()
}

// numbers returns what a statement says of op. It reads the process's clock for the period of a calendar. The
// statement then decides only if the store's clock is in that period. A caller must not call it twice for
// one statement, because the clock may have reached the next period.
func (s *Store) numbers(t *table, op *limiter.Op) tables.Numbers {
	now := op.At
	if now == 0 && t.calendar {
		if now = s.processClock().UnixNano(); now < 0 || now > maxClock {
			now = 0 // no store's clock is there
		}
	}
	return t.Numbers(op, now)
}

// maxClock is the latest instant that fits into a row.
const maxClock = 1 << 62

// processClock reads the clock of this process.
func (s *Store) processClock() time.Time {
	if s.clock != nil {
		return s.clock()
	}
	return time.Now()
}

// fields appends pointers to the fields of a row, as pgx takes and scans them.
func (t *table) fields(to []any, row *limiter.Row) []any {
	first := len(to)
	to = t.Fields(to, row)
	if len(t.Lists) > 0 {
		for i, field := range to[first:] {
			if list, ok := field.(rowlist.Part); ok {
				to[first+i] = &listArg{list: list}
			}
		}
	}
	return to
}

// The following methods run one statement on the connection or transaction db. Their errors have no
// class yet: see [Store.interpretError].

// readRow reads the row, the zero Row if there is none, and the clock.
func (s *Store) readRow(ctx context.Context, db DB, t *table, op *limiter.Op) (reading, error) {
	r, err := s.readRowByNodeClock(ctx, db, t, op)
	if err == nil && s.citus && op.At == 0 {
		r.now, err = s.readClock(ctx, db, t)
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
		return s.exec(ctx, db, t.sql.insert, s.bounded(ctx, t.fields([]any{op.Name, []byte(op.Key)}, &to), 0)...)
	}
	return s.exec(ctx, db, t.sql.swap, s.bounded(ctx, t.swapArgs(op, from, to), 1)...)
}

// swapArgs returns the arguments of the statement that replaces a row.
func (t *table) swapArgs(op *limiter.Op, from, to limiter.Row) []any {
	return t.fields(t.fields([]any{op.Name, []byte(op.Key)}, &to), &from)
}

// reading is a row and the clock, read by one statement.
type reading struct {
	row limiter.Row
	now int64
}

// apply applies op to row, at the time of the reading or at op's own.
func (r reading) apply(row limiter.Row, op limiter.Op) (limiter.Row, limiter.State) {
	now := r.now
	if op.At != 0 {
		now = op.At
	}
	next, s := op.Apply(row, now)
	if batch.GivesBack(&op) {
		return next, batch.GivenBack(s)
	}
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

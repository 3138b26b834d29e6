package postgres

import (
	"context"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/tables"
)

// takeOne carries out a lone take, or a lone charge by the statement of a take that is never refused. It
// decides only if the row has the policy of the operation and is not ahead of the clock, and a charge only
// if the statement charged the row. Otherwise the statement writes nothing.
func (s *Store) takeOne(ctx context.Context, db DB, t *table, c *batch.Call) (decided bool, err error) {
	op := &c.Op
	charge := op.Kind == limiter.OpCharge
	if charge && (t.charged == nil || op.Cost > maxCharge) {
		return false, nil
	}
	st := newTakeStatement(t, op, s.numbers(t, op))
	found, err := s.scanRow(ctx, db, st.sql, s.bounded(ctx, st.args, 1), st.columns...)
	if err != nil {
		return false, err
	}
	decided = st.taken.complete(op, st.asked) && found
	state := st.taken.state
	if decided && charge {
		decided, state.Took = t.charged(op, &state)
	}
	if !decided {
		s.counters.SecondLooks.Add(1)
		return false, nil
	}
	c.Decide(state)
	return true, nil
}

// takeUnits carries out equal takes of one key, or a take of up to its cost, by the statement of a take that
// grants units. It is not done if the statement did not decide, or if a take that it refused may wait.
func (s *Store) takeUnits(ctx context.Context, db DB, t *table, g *batch.Group) (done bool, err error) {
	op, units := unitsOf(g)
	st := newTakeStatement(t, &op, s.numbers(t, &op))
	st.add(units)
	found, err := s.scanRow(ctx, db, st.sql, s.bounded(ctx, st.args, 1), st.columns...)
	if err != nil {
		return false, err
	}
	decides := st.taken.complete(&op, st.asked)
	if !found || !decides || st.taken.granted == 0 && op.MaxWait > 0 {
		s.counters.SecondLooks.Add(int64(len(g.Calls)))
		return false, nil
	}
	s.decideUnits(t, g, &st.taken, st.asked.Cost)
	return true, nil
}

// takeStatement is the statement of a lone take: its arguments, and what it returns, in one allocation.
type takeStatement struct {
	sql     string
	args    []any
	columns []any
	taken   taken
	asked   tables.Numbers

	name    textArg
	key     byteaArg
	numbers [7]int8Arg
	list    [11]any // what args is made of
	fields  [7]any  // what columns is made of
}

func newTakeStatement(t *table, op *limiter.Op, n tables.Numbers) *takeStatement {
	st := &takeStatement{asked: n, name: textArg(op.Name), key: byteaArg(op.Key)}
	st.args = append(st.list[:0], &st.name, &st.key)
	st.columns = st.taken.columns(st.fields[:0], t)
	st.add(n.Period, n.Limit, n.Cost)
	if op.At == 0 {
		st.args = append(st.args, nil)
	} else {
		st.add(op.At)
	}
	text, more := t.take(&t.sql, op, n)
	st.sql = text
	if st.add(more...); t.calendar {
		st.add(n.Start)
	}
	return st
}

// add appends arguments.
func (st *takeStatement) add(numbers ...int64) {
	for _, n := range numbers {
		number := &st.numbers[len(st.args)-2]
		*number = int8Arg(n)
		st.args = append(st.args, number)
	}
}

// taken is what the statement of a take returns for a key.
type taken struct {
	granted int64 // units
	state   limiter.State
}

// columns appends the columns that are returned: granted, now, and those of the row without the policy.
func (a *taken) columns(to []any, t *table) []any {
	to = t.fields(append(to, &a.granted, &a.state.Now), &a.state.Row)
	return to[:len(to)-t.PolicyColumns]
}

// complete adds what the statement that was asked with n does not return. It reports whether that decides op:
// not if the row is ahead of the clock.
func (a *taken) complete(op *limiter.Op, n tables.Numbers) (decides bool) {
	s := &a.state
	s.Tick, s.Took = tickOf(op), a.granted > 0
	s.Row.Period, s.Row.Limit = n.Period, n.Limit
	return s.Row.At <= s.Now+op.Tolerance(s.Row)
}

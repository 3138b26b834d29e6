package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/tables"
)

// The queue calls Connect and Send for each statement. Send leads to the statement of a single
// operation (here), to a merged one (merge.go), or to settle (settle.go).

// sender sends the statements of one table's queue.
type sender struct {
	*Store
	table *table
}

func (s sender) Connect(ctx context.Context) (batch.Conn, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &senderConn{s, conn, fresh(conn)}, nil
}

type senderConn struct {
	sender
	conn  *pgxpool.Conn
	fresh bool
}

func (c *senderConn) Fresh() bool { return c.fresh }
func (c *senderConn) Release()    { c.release(c.conn) }

// Send carries out several keys by a merged statement, and one key by [Store.carryOut].
func (c *senderConn) Send(ctx context.Context, groups []*batch.Group) error {
	a := write
	if len(groups) == 1 {
		if a = accessOf(groups[0].Op()); groups[0].Calls[0].Locks {
			a = read
		}
	}
	return c.runOn(ctx, c.conn, a, func(db DB) error {
		if len(groups) == 1 {
			return c.carryOut(ctx, db, c.table, groups[0])
		}
		return c.sendMerged(ctx, db, c.table, groups)
	})
}

// accessOf says whether an operation can change anything.
func accessOf(op *limiter.Op) access {
	if op.Kind == limiter.OpLook {
		return read
	}
	return write
}

// carryOut carries out the calls of one key on db. A lone call has a statement of its own, and
// equal takes share a merged one. [Store.settle] decides all others, and what these statements
// could not decide.
func (s *Store) carryOut(ctx context.Context, db DB, t *table, g *batch.Group) error {
	switch {
	case g.Calls[0].Locks:
		return s.lockOnly(ctx, db, t, g)
	case g.Calls[0].Undecided:
	case s.citus && g.Op().Kind == limiter.OpTake && (g.Equal || len(g.Calls) == 1):
		err := s.takeOnCitus(ctx, db, t, g)
		if err != nil || g.Decided {
			return err
		}
	case len(g.Calls) == 1:
		if err := s.carryOutOne(ctx, db, t, g); err != nil {
			return err
		}
	case batch.GivesBack(g.Op()):
		if t.givesBack(g.Calls) {
			return s.giveBackAll(ctx, db, t, g.Calls)
		}
	case g.Equal:
		err := s.sendMerged(ctx, db, t, []*batch.Group{g})
		if err != nil || g.Decided {
			return err
		}
	}
	return s.settle(ctx, db, t, g.Calls)
}

// lockOnly waits until the row of a group can be locked. The lock ends with the statement.
func (s *Store) lockOnly(ctx context.Context, db DB, t *table, g *batch.Group) error {
	if err := s.lock(ctx, db, t, g.Op()); err != nil {
		return err
	}
	answerAll(g.Calls, make([]limiter.State, len(g.Calls)))
	return nil
}

// carryOutOne sends the statement of a single operation. It leaves a look, a block, what the kind
// has no statement for, and a take or charge that its statement does not decide, to [Store.settle].
func (s *Store) carryOutOne(ctx context.Context, db DB, t *table, g *batch.Group) error {
	c := g.Calls[0]
	take := s.takeOne
	switch c.Op.Kind {
	case limiter.OpLook, limiter.OpBlock:
	case limiter.OpTakeUpTo:
		if !s.citus && t.sql.takes != "" {
			return s.sendMerged(ctx, db, t, []*batch.Group{g})
		}
	case limiter.OpTake, limiter.OpCharge:
		if c.Op.Kind == limiter.OpCharge {
			take = s.chargeOne
		}
		if s.citus {
			return nil
		}
		state, decided, err := take(ctx, db, t, &c.Op)
		if err != nil {
			return err
		}
		if decided {
			c.Answer(state)
		} else {
			s.counters.SecondLooks.Add(1)
		}
	default:
		if !t.givesBack(g.Calls) {
			return nil
		}
		state, err := s.giveBackOne(ctx, db, t, c.Op)
		if err != nil {
			return err
		}
		c.Answer(state)
	}
	return nil
}

// takeOne carries out a single take. It decides only if the row has op's policy and is not ahead of
// the clock. Otherwise it writes nothing.
func (s *Store) takeOne(ctx context.Context, db DB, t *table, op *limiter.Op) (state limiter.State, decided bool, err error) {
	c := newTakeCall(t, op)
	found, err := s.scanRow(ctx, db, c.sql, s.bounded(ctx, c.args), c.columns...)
	c.answer.decide(t, op)
	return c.answer.state, found && c.answer.decided, err
}

// chargeOne carries out a single charge by the statement of a take that is never refused. It
// decides only if the statement charged the row.
func (s *Store) chargeOne(ctx context.Context, db DB, t *table, op *limiter.Op) (state limiter.State, decided bool, err error) {
	if t.charged == nil || op.Cost > maxCharge {
		return state, false, nil
	}
	state, decided, err = s.takeOne(ctx, db, t, op)
	var charged bool
	charged, state.Took = t.charged(op, &state)
	return state, decided && charged, err
}

// maxCharge is the highest cost that the statements add to a count without an overflow.
const maxCharge = 1 << 60

// takeCall is a single take: its arguments, and where its answer goes, in one allocation.
type takeCall struct {
	sql     string
	args    []any
	columns []any
	answer  answer

	name    textArg
	key     byteaArg
	numbers [6]int8Arg
	list    [9]any // what args is made of
	fields  [7]any // what columns is made of
}

func newTakeCall(t *table, op *limiter.Op) *takeCall {
	c := &takeCall{name: textArg(op.Name), key: byteaArg(op.Key)}
	c.args = append(c.list[:0], &c.name, &c.key)
	c.columns = c.answer.columns(c.fields[:0], t)
	period, limit, cost := t.Numbers(op)
	c.add(period, limit, cost)
	if op.At == 0 {
		c.args = append(c.args, nil)
	} else {
		c.add(op.At)
	}
	text, more := t.take(&t.sql, op)
	c.sql = text
	c.add(more...)
	return c
}

// add appends arguments.
func (c *takeCall) add(numbers ...int64) {
	for _, n := range numbers {
		number := &c.numbers[len(c.args)-2]
		*number = int8Arg(n)
		c.args = append(c.args, number)
	}
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
	return to[:len(to)-tables.PolicyColumns]
}

// decide adds what the statement does not return. The answer does not decide if the row is ahead of
// the clock.
func (a *answer) decide(t *table, op *limiter.Op) {
	s := &a.state
	s.Tick, s.Took = tickOf(op), a.granted > 0
	s.Row.Period, s.Row.Limit, _ = t.Numbers(op)
	a.decided = s.Row.At <= s.Now+op.Tolerance(s.Row)
}

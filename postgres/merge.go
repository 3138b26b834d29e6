package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

const (
	// mergedKeys is the most keys of one statement.
	mergedKeys = 256
	// sharedStatements is how many statements for many keys are in flight at a time.
	sharedStatements = 2
	// singleStatements is how many statements for one key each are in flight at a time. Up to
	// the size of a usual pool, more are faster.
	singleStatements = 16
	// hotKey is how many calls wait for a key before it gets statements of its own.
	hotKey = 8
	// lockTimeout is how long a statement for many keys waits for a locked row. Then the store
	// tries its keys one by one.
	lockTimeout = "100ms"
	// lockWait is how long a statement for one key counts as in flight. It may wait for its row
	// lock until its time is over.
	lockWait = 100 * time.Millisecond
)

// merges reports whether an operation can be a row of a merged statement: a take that books
// nothing ahead, because such a row has no room for its wait. A take that costs nothing has no
// units.
func merges(op *limiter.Op) bool {
	if w, ok := op.Policy.(limiter.FixedWindow); ok && w.CountRejected {
		return false
	}
	return op.Kind == limiter.OpTake && op.MaxWait == 0 && op.Cost > 0
}

func (s *Store) newQueue(t table) *batch.Queue {
	return batch.New(sender{s, t}, batch.Limits{
		Keys: mergedKeys, Shared: sharedStatements, Single: singleStatements, HotKey: hotKey,
		LockWait: lockWait, Merges: merges, Time: &s.time,
	})
}

// sender sends the statements of one table's queue.
type sender struct {
	*Store
	table table
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
func (c *senderConn) Release()    { release(c.conn) }

// Send carries out several keys by a merged statement, and one key by [Store.carryOut].
func (c *senderConn) Send(ctx context.Context, groups []*batch.Group) error {
	a := write
	if len(groups) == 1 {
		a = accessOf(groups[0].Op())
	}
	return c.runOn(ctx, c.conn, a, func(db DB) error {
		if len(groups) == 1 {
			return c.carryOut(ctx, db, c.table, groups[0])
		}
		return c.sendMerged(ctx, db, c.table, groups)
	})
}

// sendMerged grants takes of many keys by one statement: of each group as many as there is
// room for. Calls of a group that are not granted beside others stay unanswered.
func (s *Store) sendMerged(ctx context.Context, db DB, t table, groups []*batch.Group) error {
	n := len(groups)
	names, keys, numbers := make(textsArg, n), make(byteasArg, n), make(int8sArg, 5*n)
	periods, limits, costs, times, units := numbers[:n], numbers[n:2*n], numbers[2*n:3*n], numbers[3*n:4*n], numbers[4*n:]
	for i, g := range groups {
		op := g.Op()
		names[i], keys[i] = textArg(op.Name), byteaArg(op.Key)
		period, limit, cost := t.numbers(op)
		periods[i], limits[i], costs[i] = int8Arg(period), int8Arg(limit), int8Arg(cost)
		times[i], units[i] = int8Arg(op.At), int8Arg(len(g.Calls))
		g.Decided = false
	}
	lockTimeout := lockTimeout
	if n == 1 {
		lockTimeout = "0" // only its time limit ends it, as it does a lone take
	}
	answers, err := db.Query(ctx, t.statements().merged,
		s.args([]any{&names, &keys, &periods, &limits, &costs, &times, &units, lockTimeout})...)
	if err != nil {
		return err
	}
	defer answers.Close()
	var answer struct {
		place   int64 // of the group, counted from 1; if it is 0, name and key identify the group
		name    string
		key     string // in hex
		granted int64
		state   limiter.State
	}
	columns := append([]any{&answer.place, &answer.name, &answer.key, &answer.granted}, t.columns(&answer.state)...)
	added := 0
	for answers.Next() {
		if err := answers.Scan(columns...); err != nil {
			return err
		}
		var g *batch.Group
		if answer.place > 0 && answer.place <= int64(n) {
			g = groups[answer.place-1]
		} else {
			key, err := hex.DecodeString(answer.key)
			if err != nil {
				return err
			}
			g, added = find(groups, added, answer.name, key)
		}
		if g == nil {
			return fmt.Errorf("%w: the database answered for a key that the statement did not contain", limiter.ErrOutcomeUnknown)
		}
		op := g.Op()
		g.State, g.Granted = answer.state, answer.granted
		g.State.Tick, g.State.Took = tickOf(*op), answer.granted > 0
		g.State.Row.Period, g.State.Row.Limit, _ = t.numbers(op)
		g.Decided = g.State.Row.At <= g.State.Now+op.Tolerance(g.State.Row)
	}
	// The server can report an error after the last row. Then there is no answer.
	if err := answers.Err(); err != nil {
		return err
	}
	for _, g := range groups {
		answerUnits(t, g)
	}
	return nil
}

// answerUnits answers the calls of a group from what a merged statement returned for its key.
func answerUnits(t table, g *batch.Group) {
	for i, c := range g.Calls {
		switch {
		case !g.Decided:
			c.Undecided = true
		case g.Granted == 0:
			c.Answer(g.State)
		case int64(i) < g.Granted:
			c.Answer(t.earlier(g.Op(), g.State, g.Granted-1-int64(i)))
		}
	}
}

// find returns the group of a key, and where to look for the next one. Added rows come in the
// order of the groups, but the server does not promise it.
func find(groups []*batch.Group, from int, name string, key []byte) (*batch.Group, int) {
	for i := range groups {
		g := groups[(from+i)%len(groups)]
		if g.Op().Key == string(key) && g.Op().Name == name {
			return g, from + i + 1
		}
	}
	return nil, from
}

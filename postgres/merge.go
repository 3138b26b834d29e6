package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

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
	// giveBacks is the most statements of a pgx batch. They hold the row's lock until the last.
	giveBacks = 64
	// lockWait is how long a statement for one key waits for a locked row. Then the key's next
	// statement waits longer, but only half of the pool may run such statements.
	lockWait = 20 * time.Millisecond
	// sharedLockWait is how long a statement for many keys waits. Then the store tries the keys one by
	// one.
	sharedLockWait = 50 * time.Millisecond
)

// merges reports whether an operation can be a row of a merged statement: a take that books
// nothing ahead, because such a row has no room for its wait. A take that costs nothing has no
// units.
func (s *Store) merges(t *table, op *limiter.Op) bool {
	return t.Counter != nil && (s.citus || t.sql.takes != "") &&
		op.Kind == limiter.OpTake && op.MaxWait == 0 && op.Cost > 0 && !op.CountsRefusals()
}

func (s *Store) newQueue(t *table) *batch.Queue {
	config := batch.Config{
		Keys: mergedKeys, Shared: sharedStatements, Single: singleStatements, HotKey: hotKey,
		GiveBacks: giveBacks, LockWait: lockWait, SharedLockWait: sharedLockWait, Locked: isLocked, Slots: s.slots,
		Merges: func(op *limiter.Op) bool { return s.merges(t, op) }, Deadlines: &s.deadlines, Counters: &s.counters,
	}
	if s.mode != nil {
		config.GiveBacks = 1 // pgx sends a batch in the query mode of the connection alone
	}
	if s.citus {
		config.Keys, config.HotKey = 1, 0 // a statement goes to one shard
		config.LockWait = 0               // Citus evaluates no set_config there
		config.Locked = timedOut
	}
	return batch.New(sender{s, t}, config)
}

// sendMerged grants takes of many keys by one statement: for each group as many as there is room
// for. Calls of a group that are not granted beside others stay unanswered.
func (s *Store) sendMerged(ctx context.Context, db DB, t *table, groups []*batch.Group) error {
	rows, err := db.Query(ctx, t.sql.takes, s.args(s.bounded(ctx, mergedArgs(t, groups)))...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var number int64     // of the group, counted from 1; if it is 0, name and key identify the group
	var name, key string // the key is in hex
	var a answer
	columns := a.columns([]any{&number, &name, &key}, t)
	added := 0 // the index of the next group to look at for a row that was added
	for rows.Next() {
		if err := rows.Scan(columns...); err != nil {
			return err
		}
		var g *batch.Group
		if number > 0 && number <= int64(len(groups)) {
			g = groups[number-1]
		} else if g, added = find(groups, added, name, key); g == nil {
			return fmt.Errorf("%w: the database answered for a key that the statement did not contain", limiter.ErrOutcomeUnknown)
		}
		a.decide(t, g.Op())
		g.State, g.Granted, g.Decided = a.state, a.granted, a.decided
	}
	// The server can report an error after the last row. Then there is no answer.
	if err := rows.Err(); err != nil {
		return err
	}
	for _, g := range groups {
		s.answerUnits(t, g)
	}
	return nil
}

// mergedArgs returns the arguments of a merged statement.
func mergedArgs(t *table, groups []*batch.Group) []any {
	n := len(groups)
	names, keys := make(textsArg, n), make(byteasArg, n)
	numbers := make(int8sArg, 5*n)
	periods, limits, costs := numbers[:n], numbers[n:2*n], numbers[2*n:3*n]
	times, units := numbers[3*n:4*n], numbers[4*n:]
	for i, g := range groups {
		g.Decided = false
		op, n := unitsOf(g)
		names[i], keys[i] = textArg(op.Name), byteaArg(op.Key)
		period, limit, cost := t.Numbers(&op)
		periods[i], limits[i], costs[i] = int8Arg(period), int8Arg(limit), int8Arg(cost)
		times[i], units[i] = int8Arg(op.At), int8Arg(n)
	}
	return []any{&names, &keys, &periods, &limits, &costs, &times, &units}
}

// unitsOf returns a unit of a group's operation, and how many units the group asks for. A take of up
// to its cost is that many units of 1.
func unitsOf(g *batch.Group) (unit limiter.Op, units int64) {
	unit = *g.Op()
	if unit.Kind == limiter.OpTakeUpTo {
		units, unit.Cost = unit.Cost, 1
		return unit, units
	}
	return unit, int64(len(g.Calls))
}

// answerUnits answers the calls of a group from what a merged statement returned for its key.
func (s *Store) answerUnits(t *table, g *batch.Group) {
	_, _, cost := t.Numbers(g.Op())
	for i, c := range g.Calls {
		switch {
		case !g.Decided:
			c.Undecided = true
		case g.Granted == 0:
			c.Answer(g.State)
		case c.Op.Kind == limiter.OpTakeUpTo:
			g.State.Taken = g.Granted
			c.Answer(g.State)
		case int64(i) < g.Granted:
			state := g.State
			*t.Counter(&state.Row) -= (g.Granted - 1 - int64(i)) * cost
			c.Answer(state)
		}
		if !c.Answered() {
			s.counters.SecondLooks.Add(1)
		}
	}
}

// find returns the group of a key in hex, nil if there is none, and where to look for the next one.
// Added rows come in the order of the groups, but the server does not promise it.
func find(groups []*batch.Group, from int, name, key string) (*batch.Group, int) {
	raw, err := hex.DecodeString(key)
	if err != nil {
		return nil, from
	}
	for i := range groups {
		g := groups[(from+i)%len(groups)]
		if g.Op().Key == string(raw) && g.Op().Name == name {
			return g, from + i + 1
		}
	}
	return nil, from
}

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

func (s *Store) newQueue(t *table) *batch.Queue {
	config := batch.Config{
		Send: func(ctx context.Context, st *batch.Statement) error { return s.send(ctx, t, st) },
		Keys: mergedKeys, Shared: sharedStatements, Single: singleStatements, HotKey: hotKey,
		GiveBacks: giveBacks, LockWait: lockWait, SharedLockWait: sharedLockWait, Locked: isLocked, Slots: s.slots,
		Merges: t.merges, Deadlines: &s.deadlines, Counters: &s.counters,
	}
	if s.mode != nil {
		config.GiveBacks = 1 // pgx sends a batch in the query mode of the connection alone
	}
	if t.sql.refund == "" || t.sql.cancel == "" {
		config.GiveBacks = 1 // settle would write the row once for several, and an audit must see each
	}
	if s.citus {
		config.Keys, config.HotKey = 1, 0 // a statement goes to one shard
		config.LockWait = 0               // Citus evaluates no set_config there
		config.Locked = timedOut
	}
	return batch.New(config)
}

// takeMerged grants takes of many keys by one statement: for each group as many as there is room for. It
// reports whether the statement decided all groups. Calls of a group that are not granted beside others
// stay undecided even so.
func (s *Store) takeMerged(ctx context.Context, db DB, t *table, groups []*batch.Group) (decided bool, err error) {
	if t.sql.takes == "" {
		return false, nil
	}
	rows, err := db.Query(ctx, t.sql.takes, s.args(s.bounded(ctx, mergedArgs(t, groups)))...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	var number int64     // of the group, counted from 1; if it is 0, name and key identify the group
	var name, key string // the key is in hex
	var row taken
	columns := row.columns([]any{&number, &name, &key}, t)
	found := make([]struct {
		taken
		decides bool
	}, len(groups))
	added := 0 // the index of the next group to look at for a row that was added
	for rows.Next() {
		if err := rows.Scan(columns...); err != nil {
			return false, err
		}
		i := int(number) - 1
		if i < 0 || i >= len(groups) {
			if i, added = find(groups, added, name, key); i < 0 {
				return false, fmt.Errorf("%w: the database answered for a key that the statement did not contain", limiter.ErrOutcomeUnknown)
			}
		}
		found[i].decides = row.decides(t, groups[i].Op())
		found[i].taken = row
	}
	// The server can report an error after the last row. Then nothing counts.
	if err := rows.Err(); err != nil {
		return false, err
	}
	decided = true
	for i, g := range groups {
		if !found[i].decides {
			decided = false
			s.counters.SecondLooks.Add(int64(len(g.Calls)))
			for _, c := range g.Calls {
				c.ReadFirst = true
			}
			continue
		}
		s.decideUnits(t, g, &found[i].taken)
	}
	return decided, nil
}

// mergedArgs returns the arguments of a merged statement.
func mergedArgs(t *table, groups []*batch.Group) []any {
	n := len(groups)
	names, keys := make(textsArg, n), make(byteasArg, n)
	numbers := make(int8sArg, 5*n)
	periods, limits, costs := numbers[:n], numbers[n:2*n], numbers[2*n:3*n]
	times, units := numbers[3*n:4*n], numbers[4*n:]
	for i, g := range groups {
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

// decideUnits decides the calls of a group by what a statement returned for its key. Calls that it did not
// grant beside others stay undecided.
func (s *Store) decideUnits(t *table, g *batch.Group, row *taken) {
	_, _, cost := t.Numbers(g.Op())
	for i, c := range g.Calls {
		state := row.state
		switch {
		case row.granted == 0:
		case c.Op.Kind == limiter.OpTakeUpTo:
			state.Taken = row.granted
		case int64(i) < row.granted-1:
			t.Add(&state.Row, -(row.granted-1-int64(i))*cost)
		case int64(i) == row.granted-1:
		default:
			s.counters.SecondLooks.Add(1)
			continue
		}
		c.Decide(state)
	}
}

// find returns the index of the group of a key in hex, -1 if there is none, and where to look for the next
// one. Added rows come in the order of the groups, but the server does not promise it.
func find(groups []*batch.Group, from int, name, key string) (i, next int) {
	raw, err := hex.DecodeString(key)
	if err != nil {
		return -1, from
	}
	for n := range groups {
		i := (from + n) % len(groups)
		if op := groups[i].Op(); op.Key == string(raw) && op.Name == name {
			return i, from + n + 1
		}
	}
	return -1, from
}

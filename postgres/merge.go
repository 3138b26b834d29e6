package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/tables"
)

// takeMerged carries out takes and charges of many keys by one statement: for each group as many as there is room
// for. It reports whether the statement decided about all groups.
func (s *Store) takeMerged(ctx context.Context, db DB, t *table, groups []*batch.Group) (done bool, err error) {
	if t.sql.takes == "" {
		return false, nil
	}
	asked := make([]tables.Numbers, len(groups))
	rows, err := db.Query(ctx, t.sql.takes, s.args(s.bounded(ctx, s.mergedArgs(t, groups, asked)))...)
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
		op := groups[i].Op()
		found[i].decides = row.complete(op, asked[i]) && (row.granted > 0 || op.Kind != limiter.OpCharge)
		found[i].taken = row
	}
	// The server can report an error after the last row. Then nothing counts.
	if err := rows.Err(); err != nil {
		return false, err
	}
	done = true
	for i, g := range groups {
		if !found[i].decides {
			done = false
			s.counters.SecondLooks.Add(int64(len(g.Calls)))
			for _, c := range g.Calls {
				c.ReadFirst = true
			}
			continue
		}
		s.decideUnits(t, g, &found[i].taken, asked[i].Cost)
	}
	return done, nil
}

// mergedArgs returns the arguments of a merged statement, and sets asked to the numbers of the groups.
func (s *Store) mergedArgs(t *table, groups []*batch.Group, asked []tables.Numbers) []any {
	n := len(groups)
	names, keys := make(textsArg, n), make(byteasArg, n)
	numbers := make(int8sArg, 7*n)
	periods, limits, costs := numbers[:n], numbers[n:2*n], numbers[2*n:3*n]
	times, units, reaches, starts := numbers[3*n:4*n], numbers[4*n:5*n], numbers[5*n:6*n], numbers[6*n:]
	for i, g := range groups {
		op, n := unitsOf(g)
		names[i], keys[i] = textArg(op.Name), byteaArg(op.Key)
		asked[i] = s.numbers(t, &op)
		periods[i], limits[i], costs[i] = int8Arg(asked[i].Period), int8Arg(asked[i].Limit), int8Arg(asked[i].Cost)
		times[i], units[i], starts[i] = int8Arg(op.At), int8Arg(n), int8Arg(asked[i].Start)
		reaches[i] = int8Arg(t.reach(&op, asked[i]))
	}
	args := []any{&names, &keys, &periods, &limits, &costs, &times, &units, &reaches}
	if t.calendar {
		args = append(args, &starts)
	}
	return args
}

// unitsOf returns a unit of a group's operation, and how many units the group asks for. A take of up
// to its cost is that many units of 1.
func unitsOf(g *batch.Group) (unit limiter.Op, units int64) {
	unit, units = *g.Op(), int64(len(g.Calls))
	if unit.Kind == limiter.OpTakeUpTo {
		units *= min(unit.Cost, math.MaxInt64/units)
		unit.Cost = 1
	}
	return unit, units
}

// decideUnits decides the calls of a group, one after another, by what a statement returned for its key. It
// does not decide those that it did not grant beside others. The cost is that of a unit.
func (s *Store) decideUnits(t *table, g *batch.Group, row *taken, cost int64) {
	left := row.granted
	for _, c := range g.Calls {
		if state := row.state; row.granted == 0 {
			c.Decide(state)
		} else if left > 0 {
			units := int64(1)
			if c.Op.Kind == limiter.OpTakeUpTo {
				units = min(c.Op.Cost, left)
				state.Taken = units
			}
			if left -= units; left > 0 {
				t.Add(&state.Row, -left*cost)
			}
			if c.Op.Kind == limiter.OpCharge {
				_, state.Took = t.charged(&c.Op, &state)
			}
			c.Decide(state)
		} else {
			s.counters.SecondLooks.Add(1)
		}
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

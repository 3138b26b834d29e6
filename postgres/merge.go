package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"sync"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/tables"
)

// merged is a statement for many keys: its arguments, and what it returns. It is reused, because all of that
// would be most of what a take allocates.
type merged struct {
	names   textsArg
	keys    byteasArg
	bytes   []byte      // of the keys
	numbers [7]int8sArg // the periods, limits, costs, times, units, reaches and starts
	args    []any

	number    int64  // of the group, counted from 1; if it is 0, name and key identify the group
	name, key string // the key is in hex
	row       taken
	columns   []any
	groups    []mergedGroup

	unit limiter.Op // of the group that is added
}

// mergedGroup is what a merged statement asked for a group, and what it found.
type mergedGroup struct {
	asked   tables.Numbers
	found   taken
	decides bool
}

var mergeds = sync.Pool{New: func() any { return new(merged) }}

// takeMerged carries out takes and charges of many keys by one statement: for each group as many as there is room
// for. It reports whether the statement decided about all groups.
func (s *Store) takeMerged(ctx context.Context, db DB, t *table, groups []*batch.Group) (done bool, err error) {
	if t.sql.takes == "" {
		return false, nil
	}
	m := mergeds.Get().(*merged)
	defer mergeds.Put(m)
	m.ask(s, t, groups)
	rows, err := db.Query(ctx, t.sql.takes, s.args(s.bounded(ctx, m.args, 1))...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	added := 0 // the index of the next group to look at for a row that was added
	for rows.Next() {
		if err := rows.Scan(m.columns...); err != nil {
			return false, err
		}
		i := int(m.number) - 1
		if i < 0 || i >= len(groups) {
			if i, added = find(groups, added, m.name, m.key); i < 0 {
				return false, fmt.Errorf("%w: the database answered for a key that the statement did not contain", limiter.ErrOutcomeUnknown)
			}
		}
		g, op := &m.groups[i], groups[i].Op()
		g.decides = m.row.complete(op, g.asked) && (m.row.granted > 0 || op.Kind != limiter.OpCharge)
		g.found = m.row
	}
	// The server can report an error after the last row. Then nothing counts.
	if err := rows.Err(); err != nil {
		return false, err
	}
	done = true
	for i, g := range groups {
		of := &m.groups[i]
		if !of.decides {
			done = false
			s.counters.SecondLooks.Add(int64(len(g.Calls)))
			for _, c := range g.Calls {
				c.ReadFirst = true
			}
			continue
		}
		s.decideUnits(t, g, &of.found, of.asked.Cost)
	}
	return done, nil
}

// ask makes m the statement for these groups.
func (m *merged) ask(s *Store, t *table, groups []*batch.Group) {
	m.names, m.keys, m.bytes, m.groups = m.names[:0], m.keys[:0], m.bytes[:0], m.groups[:0]
	for i := range m.numbers {
		m.numbers[i] = m.numbers[i][:0]
	}
	for _, g := range groups {
		var units int64
		m.unit, units = unitsOf(g)
		op := &m.unit
		key := len(m.bytes)
		m.bytes = append(m.bytes, op.Key...)
		m.names, m.keys = append(m.names, textArg(op.Name)), append(m.keys, m.bytes[key:])
		n := s.numbers(t, op)
		for i, number := range [...]int64{n.Period, n.Limit, n.Cost, op.At, units, t.reach(op, n), n.Start} {
			m.numbers[i] = append(m.numbers[i], int8Arg(number))
		}
		m.groups = append(m.groups, mergedGroup{asked: n})
	}
	m.args = append(m.args[:0], &m.names, &m.keys)
	for i := range m.numbers[:6] {
		m.args = append(m.args, &m.numbers[i])
	}
	if t.calendar {
		m.args = append(m.args, &m.numbers[6])
	}
	m.row = taken{} // another kind has other columns
	m.columns = m.row.columns(append(m.columns[:0], &m.number, &m.name, &m.key), t)
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

// decideUnits decides the calls of a group, one after another, by what a statement returned for its key. Calls that
// it did not grant beside others are refused by the same clock: they had begun when the statement read it. To send
// them again would grant what has come back meanwhile, and so delay the refusals of a busy key for as long as it is
// busy. The cost is that of a unit.
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
				before := state.Row // allocated only here
				t.Add(&before, -left*cost)
				state.Row = before
			}
			if c.Op.Kind == limiter.OpCharge {
				charged := state // allocated only here
				_, state.Took = t.charged(&c.Op, &charged)
			}
			c.Decide(state)
		} else if next, refused := c.Op.Apply(state.Row, state.Now); !refused.Took && next == state.Row {
			refused.Tick = state.Tick
			c.Decide(refused)
		} else { // a charge
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

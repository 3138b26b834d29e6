package history

import (
	"math/rand/v2"
	"slices"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/tables"
)

// split makes steps of a transition: one for each call that it carried out. Equal takes that a
// statement merged cost the same, so that any of them that is known tells the number.
func (k *rowHistory) split(t Transition) {
	whole := step{old: t.Old, new: t.New, swept: t.New == (limiter.Row{})}
	if whole.swept || t.New == t.Old || k.givenBack(&whole) {
		k.steps = append(k.steps, whole)
		return
	}
	if k.splitSeveral(t, true) {
		return
	}
	unknown := k.unknownAt(t.New.At)
	most, unit := int64(0), int64(0)
	// A take of up to its cost is as many units as takes of cost 1, so several numbers of calls may be
	// possible. Each attempt prefers others, so that not all transitions prefer the same.
	more := k.attempt>>(len(k.steps)%6)&1 == 0
	consider := func(c *Call, now int64, more bool, spare []*Call) {
		n, cost, ok := units(c, t, now)
		if ok && (most == 0 || more && n > most || !more && n < most) && k.unheard(t, c, n, cost) <= equal(spare, c) {
			most, unit = n, cost
		}
	}
	for _, spare := range [...][]*Call{nil, unknown} { // first without calls of unknown outcome
		for _, c := range k.told[t.New] {
			if !c.changes() && (most == 0 || spare == nil) {
				consider(c, c.State.Now, more, spare)
			}
		}
	}
	if most == 0 {
		for _, c := range unknown {
			now, _ := c.reads(&whole)
			consider(c, now, !more, unknown)
		}
		// Different calls may have made what one call, or equal ones, could also have made.
		if (most == 0 || k.attempt>>((len(k.steps)+3)%6)&1 == 1) && k.splitSeveral(t, false) {
			return
		}
	}
	row := t.Old
	for i := range max(1, most) {
		next := less(t, unit, max(1, most)-1-i)
		k.steps = append(k.steps, step{old: row, new: next})
		row = next
	}
}

// givenBack reports whether a refund or cancel tells that it made a step. It comes before calls of unknown outcome.
func (k *rowHistory) givenBack(s *step) bool {
	return slices.ContainsFunc(k.told[s.new], func(c *Call) bool { return c.changes() && k.makes(c, s, k.offset.during(c)) })
}

// equal returns how many of the calls are the same operation as c.
func equal(calls []*Call, c *Call) (n int64) {
	for _, other := range calls {
		if other.Op == c.Op {
			n++
		}
	}
	return n
}

// unheard returns of how many rows no take like c was told, if n of them make a transition.
func (k *rowHistory) unheard(t Transition, c *Call, n, cost int64) (rows int64) {
	for i := range n {
		if !slices.ContainsFunc(k.told[less(t, cost, i)], func(other *Call) bool {
			return other == c || other.granted() && other.Op == c.Op && (c.Outcome == Unknown || other.State.Now == c.State.Now)
		}) {
			rows++
		}
	}
	return rows
}

// units returns how many takes like c make t, and by how much each moves the row.
func units(c *Call, t Transition, now int64) (n, cost int64, ok bool) {
	first, s := c.Op.Apply(t.Old, now)
	switch {
	case c.Outcome == Answered && s.Took != c.State.Took:
		return 0, 0, false
	case first == t.New:
		return 1, 0, t.Units <= 1 || t.Units == s.Taken
	case !s.Took || c.Op.Kind != limiter.OpTake:
		return 0, 0, false
	}
	table := tables.All[t.Key.Kind-1]
	cost = table.Numbers(&c.Op, now).Cost
	if c.Op.MaxWait > 0 || cost == 0 || table.Add == nil {
		return 0, 0, false
	}
	n = (table.Add(&t.New, 0) - table.Add(&first, 0)) / cost
	ok = n > 0 && less(t, cost, n) == first && (t.Units == 0 || t.Units == n+1)
	return n + 1, cost, ok
}

// less is the row that t leaves, before its last n takes of a cost.
func less(t Transition, cost, n int64) limiter.Row {
	if n > 0 && cost > 0 {
		tables.All[t.Key.Kind-1].Add(&t.New, -n*cost)
	}
	return t.New
}

// several finds the takes, charges and blocks that one transition carried out one after another. A
// store decides the calls that wait for a key together, at one reading of the clock, and writes the row
// once. Each call tells the row that it left, so only those of unknown outcome have to be guessed.
type several struct {
	*rowHistory
	to      limiter.Row
	all     bool
	takes   []*Call // and others, told of a row of this reading; a refusal may have converted it
	unknown []*Call // of unknown outcome
	used    map[*Call]bool
	tries   int
	rows    []limiter.Row
	calls   []*Call // that led to each row but the first
}

// mostPaths is how often several tries a call for a place.
const mostPaths = 20_000

// splitSeveral makes a step of each call that a transition carried out, and reports whether it
// found them: if all is true, all that were told of a row of its reading. In a window a late take
// leaves the reading of the one before, so that these are not all of one transition.
func (k *rowHistory) splitSeveral(t Transition, all bool) bool {
	if all && t.New.At == t.Old.At {
		return false
	}
	s := &several{rowHistory: k, to: t.New, all: all, takes: slices.Clone(k.writers[t.New.At]), used: map[*Call]bool{}, rows: []limiter.Row{t.Old}}
	// A refusal that converts the row comes before a call that would convert it as well.
	slices.SortStableFunc(s.takes, func(a, b *Call) int {
		switch refused := a.refused(); {
		case refused == b.refused():
			return 0
		case refused:
			return -1
		}
		return 1
	})
	s.unknown = k.unknownAt(t.New.At)
	if k.attempt > 0 {
		r := rand.New(rand.NewPCG(uint64(k.attempt), uint64(len(k.steps))))
		r.Shuffle(len(s.unknown), func(i, j int) { s.unknown[i], s.unknown[j] = s.unknown[j], s.unknown[i] })
	}
	if all && !slices.ContainsFunc(s.takes, s.counts) || !s.find(t.Old) {
		return false
	}
	for n, c := range s.calls {
		k.steps = append(k.steps, step{old: s.rows[n], new: s.rows[n+1]})
		if c.Outcome == Unknown {
			k.take(len(k.steps)-1, c)
			k.clock[c] = t.New.At
		}
	}
	return true
}

// unknownAt returns what may have been carried out when the clock read now, of unknown outcome.
func (k *rowHistory) unknownAt(now int64) (calls []*Call) {
	for _, c := range k.calls {
		if during := k.offset.during(c); c.mayHaveWritten() && !k.used[c] && during.from <= now && during.to >= now {
			calls = append(calls, c)
		}
	}
	return calls
}

// counts reports whether a take, charge or block changed the count at this reading. In a window a later
// call may have an earlier reading, and is told the same clock of the row.
func (s *several) counts(c *Call) bool {
	return c.State.Now == s.to.At && (!c.refused() || c.Op.CountsRefusals())
}

// missing reports whether c changed the count, but has no place in what was found.
func (s *several) missing(c *Call) bool {
	return s.counts(c) && !s.used[c] && !slices.ContainsFunc(s.rows, func(row limiter.Row) bool {
		next, state := c.apply(row, c.State.Now) // a charge changes nothing on a blocked window
		return next == row && state == c.State
	})
}

func (s *several) find(row limiter.Row) bool {
	if row == s.to && len(s.rows) > 1 && (!s.all || !slices.ContainsFunc(s.takes, s.missing)) {
		return true
	}
	for _, c := range s.takes {
		if next, state := c.apply(row, c.State.Now); state == c.State && s.goOn(c, row, next) {
			return true
		}
	}
	tried := map[limiter.Op]bool{}
	for _, c := range s.unknown {
		if s.used[c] || tried[c.Op] {
			continue
		}
		tried[c.Op] = true
		if next, _ := c.Op.Apply(row, s.to.At); s.goOn(c, row, next) {
			return true
		}
	}
	return false
}

// goOn goes on with c, if it changes the row.
func (s *several) goOn(c *Call, row, next limiter.Row) bool {
	if s.used[c] || next == row {
		return false
	}
	if s.tries++; s.tries > mostPaths {
		return false
	}
	s.used[c] = true
	s.rows, s.calls = append(s.rows, next), append(s.calls, c)
	if s.find(next) {
		return true
	}
	delete(s.used, c)
	s.rows, s.calls = s.rows[:len(s.rows)-1], s.calls[:len(s.calls)-1]
	return false
}

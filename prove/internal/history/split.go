package history

import (
	"slices"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/tables"
)

// split makes steps of a transition: one for each call that it carried out. Equal takes that a
// statement merged cost the same, so that any of them that is known tells the number.
func (k *rowHistory) split(t Transition) {
	whole := step{old: t.Old, new: t.New, swept: t.New == (limiter.Row{})}
	if whole.swept || t.New == t.Old {
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
	_, _, cost = table.Numbers(&c.Op)
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

package history

import "github.com/sqlimit/limiter"

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
	try := func(c *Call, now int64) bool {
		n, cost, ok := units(c, t, now)
		for i := int64(1); ok && i < n; i++ {
			ok = k.heard(less(t.New, cost, i), c)
		}
		if !ok {
			return false
		}
		row := t.Old
		for i := range n {
			next := less(t.New, cost, n-1-i)
			k.steps = append(k.steps, step{old: row, new: next})
			row = next
		}
		return true
	}
	for _, c := range k.told[t.New] {
		if !c.changes() && try(c, c.State.Now) {
			return
		}
	}
	for _, c := range k.calls {
		if c.Outcome == Unknown && c.Op.Kind == limiter.OpTake && try(c, t.New.At) {
			return
		}
	}
	if k.splitSeveral(t, false) {
		return
	}
	k.steps = append(k.steps, whole)
}

// heard reports whether a take like c was told of a row in the middle of a transition, or
// may not have been told.
func (k *rowHistory) heard(row limiter.Row, c *Call) bool {
	for _, other := range k.told[row] {
		if !other.changes() && other.State.Took && other.Op.Cost == c.Op.Cost {
			return true
		}
	}
	return k.doubtful
}

// units returns how many takes like c make t, and by how much each moves the row.
func units(c *Call, t Transition, now int64) (n int64, cost limiter.Row, ok bool) {
	first, s := c.Op.Apply(t.Old, now)
	switch {
	case c.Outcome == Answered && s.Took != c.State.Took:
		return 0, cost, false
	case first == t.New:
		return 1, cost, t.Units <= 1
	case !s.Took:
		return 0, cost, false
	}
	rest := limiter.Row{FullAt: t.New.FullAt - first.FullAt, Used: t.New.Used - first.Used}
	if c.Op.MaxWait > 0 || less(t.New, rest, 1) != first || c.Op.Cost == 0 {
		return 0, cost, false
	}
	if t.Key.Window {
		cost.Used = c.Op.Cost
		n = rest.Used / cost.Used
	} else {
		cost.FullAt = c.Op.Cost * first.Period
		n = rest.FullAt / cost.FullAt
	}
	ok = n > 0 && less(t.New, cost, n) == first && (t.Units == 0 || t.Units == n+1)
	return n + 1, cost, ok
}

// less is row before n takes of that cost.
func less(row, cost limiter.Row, n int64) limiter.Row {
	row.FullAt -= n * cost.FullAt
	row.Used -= n * cost.Used
	return row
}

package history

import (
	"math/rand/v2"
	"slices"

	"github.com/sqlimit/limiter"
)

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
// has the reading of the one before.
func (k *rowHistory) splitSeveral(t Transition, all bool) bool {
	if t.New.At == t.Old.At {
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
			k.report.Applied++
		}
	}
	return true
}

// unknownAt returns the takes, charges and blocks of unknown outcome that may have been carried out
// when the clock read now.
func (k *rowHistory) unknownAt(now int64) (calls []*Call) {
	for _, c := range k.calls {
		if during := k.offset.during(c); c.Outcome == Unknown && c.writes() && !k.used[c] && during.from <= now && during.to >= now {
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

// find finds calls that lead from row to the end.
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

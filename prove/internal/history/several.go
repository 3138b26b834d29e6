package history

import (
	"math/rand/v2"
	"slices"

	"github.com/sqlimit/limiter"
)

// several finds the takes that one transition carried out one after another: a store decides
// the takes that wait for a key together, at one reading of the clock, and writes the row once. Each
// grant tells the row that it left, so only grants of unknown outcome have to be guessed.
type several struct {
	*rowHistory
	to      limiter.Row
	all     bool
	takes   []*Call // that were told of a row of this reading; a refusal may have converted it
	unknown []*Call // takes of unknown outcome
	used    map[*Call]bool
	tries   int
	rows    []limiter.Row
	calls   []*Call // that led to each row but the first
}

// mostPaths is how often several tries a call for a place.
const mostPaths = 20_000

// splitSeveral makes a step of each take that a transition carried out, and reports whether it
// found them: if all is true, all that were told of a row of its reading. In a window a late take
// has the reading of the one before.
func (k *rowHistory) splitSeveral(t Transition, all bool) bool {
	if t.New.At == t.Old.At {
		return false
	}
	s := &several{rowHistory: k, to: t.New, all: all, takes: slices.Clone(k.writers[t.New.At]), used: map[*Call]bool{}, rows: []limiter.Row{t.Old}}
	// A refusal that converts the row comes before a grant that would convert it as well.
	slices.SortStableFunc(s.takes, func(a, b *Call) int {
		switch {
		case a.State.Took == b.State.Took:
			return 0
		case b.State.Took:
			return -1
		}
		return 1
	})
	for _, c := range k.calls {
		if during := k.offset.during(c); c.Outcome == Unknown && c.Op.Kind == limiter.OpTake && !k.used[c] && during.from <= t.New.At && during.to >= t.New.At {
			s.unknown = append(s.unknown, c)
		}
	}
	if k.attempt > 0 {
		r := rand.New(rand.NewPCG(uint64(k.attempt), uint64(len(k.steps))))
		r.Shuffle(len(s.unknown), func(i, j int) { s.unknown[i], s.unknown[j] = s.unknown[j], s.unknown[i] })
	}
	whole := step{old: t.Old, new: t.New}
	alone := func(c *Call) bool { return k.makes(c, &whole, span{}) }
	if all && !slices.ContainsFunc(s.takes, (*Call).counts) || !all && slices.ContainsFunc(s.unknown, alone) || !s.find(t.Old) {
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

// counts reports whether a take has changed the count.
func (c *Call) counts() bool { return c.State.Took || countsRejected(&c.Op) }

// find finds takes that lead from row to the end.
func (s *several) find(row limiter.Row) bool {
	if row == s.to && len(s.rows) > 1 && (!s.all || !slices.ContainsFunc(s.takes, func(c *Call) bool { return c.counts() && !s.used[c] })) {
		return true
	}
	for _, c := range s.takes {
		if next, state := c.apply(row, c.State.Now); state == c.State && s.goOn(c, row, next) {
			return true
		}
	}
	for _, c := range s.unknown {
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

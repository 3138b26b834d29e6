package main

import "slices"

// testCase is a contender in a scenario with a number of callers, and what it gave.
type testCase struct {
	scenario  scenario
	callers   int // for a contender with rows: how many requests are under way
	contender contender
	*series
}

// group is what is compared with each other: the cases with one scenario and number of callers, which
// are measured one directly after another.
type group []testCase

// callers returns the number of callers of a group, 0 if it has only contenders with rows.
func (g group) callers() int {
	for _, c := range g {
		if c.contender.rows == 0 {
			return c.callers
		}
	}
	return 0
}

// plan returns the groups that the options choose, in the order of the tables. A contender with rows comes
// once a scenario, after the others of its first group.
func (o options) plan() (groups []group) {
	for _, sc := range scenarios {
		rowsDone := sc.name == "lone" || sc.named // nothing to put together
		for _, callers := range sc.callers {
			if len(o.callers) > 0 && !slices.Contains(o.callers, callers) {
				continue
			}
			var g group
			for _, c := range contenders {
				switch {
				case !o.run.MatchString(sc.name + "/" + c.name):
				case (c.scenarios != nil || sc.named) && !slices.Contains(c.scenarios, sc.name):
				case c.rows > 0:
					if !rowsDone {
						g = append(g, testCase{sc, batchers * c.rows, c, &series{}})
					}
				case c.callers == nil || slices.Contains(c.callers, callers):
					g = append(g, testCase{sc, callers, c, &series{}})
				}
			}
			rowsDone = true
			if len(g) > 0 {
				groups = append(groups, g)
			}
		}
	}
	return groups
}

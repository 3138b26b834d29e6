package main

import (
	"regexp"
	"slices"
)

// testCase is a contender in a scenario with a number of callers.
type testCase struct {
	scenario  scenario
	callers   int // for a contender with rows: how many requests are under way
	contender contender
}

// group is what is compared with each other: the cases with one scenario and number of callers, which
// are measured one directly after another.
type group []testCase

// selection is what of it all is run.
type selection struct {
	run     *regexp.Regexp // matches scenario/contender
	callers []int          // only these; empty: all
}

// plan returns the groups of a selection, in the order of the tables. A contender with rows comes once
// a scenario, after the others of its first group.
func (s selection) plan() []group {
	var groups []group
	for _, sc := range scenarios {
		rowsDone := sc.name == "lone" || sc.named // nothing to put together
		for _, callers := range sc.callers {
			if len(s.callers) > 0 && !slices.Contains(s.callers, callers) {
				continue
			}
			var g group
			for _, c := range contenders {
				switch {
				case !s.run.MatchString(sc.name + "/" + c.name):
				case (c.scenarios != nil || sc.named) && !slices.Contains(c.scenarios, sc.name):
				case c.rows > 0:
					if !rowsDone {
						g = append(g, testCase{sc, batchers * c.rows, c})
					}
				case c.callers == nil || slices.Contains(c.callers, callers):
					g = append(g, testCase{sc, callers, c})
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

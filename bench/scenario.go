package main

import (
	"fmt"
	"slices"

	"github.com/sqlimit/limiter/bench/internal/load"
)

type scenario struct {
	name    string
	about   string
	callers []int
	keys    int  // number of keys
	zipf    bool // a few keys get most of the requests
	named   bool // only contenders that name it run in it
	policy  policy
}

// scenarios are in the order of the tables.
var scenarios = []scenario{
	{name: "lone", about: "one caller, 10,000 keys", callers: []int{1}, keys: 10_000, policy: plenty},
	{name: "many", about: "10,000 keys, all equally likely", callers: []int{64, 256, 1024}, keys: 10_000, policy: plenty},
	{name: "hot", about: "one key", callers: []int{64, 256, 1024}, keys: 1, policy: plenty},
	{name: "refused", about: "1,000 keys with nothing left, so every request is refused", callers: []int{1, 64, 256, 1024}, keys: 1000, policy: scarce},
	{name: "zipf", about: "10,000 keys; one request in seven is for the first key (Zipf, s = 1.1)", callers: []int{64, 256, 1024}, keys: 10_000, zipf: true, policy: plenty},
	{name: "two", about: "two limits for each of 10,000 keys, both or none", callers: []int{1, 64, 256}, keys: 10_000, named: true, policy: plenty},
}

// wants returns the decision that every request of the scenario must get.
func (s scenario) wants() bool { return s.policy.name == plenty.name }

// keyNames returns the keys. No other run of this program uses them.
func (s scenario) keyNames(prefix string) []string {
	names := make([]string, s.keys)
	for i := range names {
		names[i] = fmt.Sprintf("%s%s:%s:client-%d", prefix, s.policy.name, s.name, i)
	}
	return names
}

func (s scenario) order(names []string) []string {
	order := make([]string, load.OrderLength)
	for i, n := range load.Order(len(names), s.zipf) {
		order[i] = names[n]
	}
	return order
}

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

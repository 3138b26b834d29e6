package main

import (
	"fmt"

	"github.com/sqlimit/limiter/bench/internal/load"
)

// scenario is who asks for what.
type scenario struct {
	name    string
	about   string
	callers []int
	keys    int  // how many there are
	zipf    bool // a few keys get most of the requests
	policy  policy
}

// scenarios are all, in the order of the tables.
var scenarios = []scenario{
	{name: "lone", about: "one caller, 10,000 keys", callers: []int{1}, keys: 10_000, policy: plenty},
	{name: "many", about: "10,000 keys, all alike", callers: []int{64, 256, 1024}, keys: 10_000, policy: plenty},
	{name: "hot", about: "one key", callers: []int{64, 256, 1024}, keys: 1, policy: plenty},
	{name: "refused", about: "1,000 keys that have nothing left", callers: []int{1, 64, 256, 1024}, keys: 1000, policy: scarce},
	{name: "zipf", about: "10,000 keys, of which one in seven requests wants the first (Zipf, s = 1.1)", callers: []int{64, 256, 1024}, keys: 10_000, zipf: true, policy: plenty},
}

// wants is the decision that every request of the scenario must get.
func (s scenario) wants() bool { return s.policy.name == plenty.name }

// keyNames returns the keys, which no other run of this program uses.
func (s scenario) keyNames(prefix string) []string {
	names := make([]string, s.keys)
	for i := range names {
		names[i] = fmt.Sprintf("%s%s:%s:client-%d", prefix, s.policy.name, s.name, i)
	}
	return names
}

// order returns in which order the keys are wanted.
func (s scenario) order(names []string) []string {
	order := make([]string, load.OrderLength)
	for i, n := range load.Order(len(names), s.zipf) {
		order[i] = names[n]
	}
	return order
}

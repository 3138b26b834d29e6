package main

import (
	"fmt"

	"github.com/sqlimit/limiter/bench/internal/load"
)

// scenario is a pattern of requests.
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

// order returns the keys in the order of the requests.
func (s scenario) order(names []string) []string {
	order := make([]string, load.OrderLength)
	for i, n := range load.Order(len(names), s.zipf) {
		order[i] = names[n]
	}
	return order
}

package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/sqlimit/limiter/bench/internal/load"
)

func TestPlanComparesTheCeilingOnceAScenario(t *testing.T) {
	t.Parallel()
	found := make(map[string]int)
	for _, g := range (selection{run: regexp.MustCompile("")}).plan() {
		for _, c := range g {
			if c.scenario.name != g[0].scenario.name || c.contender.rows == 0 && c.callers != callersOf(g) {
				t.Errorf("%v is compared with %v", c.id(), g[0].id())
			}
			if c.contender.rows > 0 {
				found[c.scenario.name]++
			}
		}
	}
	for _, sc := range scenarios {
		want := 1
		if sc.name == "lone" || sc.named {
			want = 0
		}
		if found[sc.name] != want {
			t.Errorf("%s has %d ceilings, want %d", sc.name, found[sc.name], want)
		}
	}
}

func TestPlanKeepsToTheSelection(t *testing.T) {
	t.Parallel()
	var got []caseID
	for _, g := range (selection{run: regexp.MustCompile("^(lone|hot)/upsert-sqlite$"), callers: []int{1, 64}}).plan() {
		for _, c := range g {
			got = append(got, c.id())
		}
	}
	want := []caseID{{"lone", 1, "upsert-sqlite"}, {"hot", 64, "upsert-sqlite"}}
	if !slices.Equal(got, want) {
		t.Errorf("plan = %v, want %v", got, want)
	}
}

func TestComparisonsNameContenders(t *testing.T) {
	t.Parallel()
	for _, c := range comparisons {
		for _, name := range []string{c.ours, c.peer} {
			if !slices.ContainsFunc(contenders, func(c contender) bool { return c.name == name }) {
				t.Errorf("%q compares with %q, which is no contender", c.title, name)
			}
		}
	}
}

func TestOrderWantsEveryKindOfKey(t *testing.T) {
	t.Parallel()
	for _, sc := range scenarios {
		names := sc.keyNames("x:")
		counts := make(map[string]int)
		for _, key := range sc.order(names) {
			counts[key]++
		}
		first := counts[names[0]]
		switch {
		case sc.keys == 1 && first != load.OrderLength:
			t.Errorf("%s: %d of %d want the only key", sc.name, first, load.OrderLength)
		case sc.zipf && (first < load.OrderLength/8 || first > load.OrderLength/6):
			t.Errorf("%s: %d of %d want the first key, not one in seven", sc.name, first, load.OrderLength)
		case !sc.zipf && len(counts) < sc.keys*99/100:
			t.Errorf("%s: %d of %d keys are wanted", sc.name, len(counts), sc.keys)
		}
	}
}

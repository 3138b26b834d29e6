package trial

import "time"

// Target is a package that is changed, and the packages whose tests have to notice, fastest first.
type Target struct {
	Dir    string
	Quick  string // matches the tests of the first suite that a sample begins with
	Suites []Suite
}

// Suite is the tests of a package without those that match Skip.
type Suite struct {
	Package, Skip string
	Takes         time.Duration // about, on two cores
}

// documents matches the root's tests of documents and workflows.
const documents = "^(TestReadme|TestProse|TestDocs|TestWorkflows)"

// Plan is all that is changed.
var Plan = []Target{
	{".", ".", []Suite{{".", documents, 20 * time.Second}, {"./memory", "", 5 * time.Second}, {"./handler", "", 5 * time.Second}}},
	{"memory", ".", []Suite{{"./memory", "", 5 * time.Second}, {".", documents, 20 * time.Second}}},
	{"internal/batch", ".", []Suite{{"./internal/batch", "", time.Second}}},
	{"internal/breaker", ".", []Suite{{"./internal/breaker", "", time.Second}}},
	{"internal/opcontext", ".", []Suite{{"./internal/opcontext", "", time.Second}, {"./internal/batch", "", time.Second}}},
	{"internal/sweep", ".", []Suite{{"./internal/sweep", "", 2 * time.Second}}},
	{"overrides", ".", []Suite{{"./overrides", "", 5 * time.Second}}},
	{"handler", ".", []Suite{{"./handler", "", 5 * time.Second}}},
	{"grpclimiter", ".", []Suite{{"./grpclimiter", "", 5 * time.Second}}},
	{"sqlite", "OnAnyRow", []Suite{{"./sqlite", "", 60 * time.Second}}},
	{"migrations", "Up", []Suite{{"./migrations", "", 60 * time.Second}}},
	{"postgres", "OnAnyRow", []Suite{{"./postgres", "", 120 * time.Second}}},
}

// dirs returns the packages of a plan.
func dirs(plan []Target) (list []string) {
	for _, t := range plan {
		list = append(list, t.Dir)
	}
	return list
}

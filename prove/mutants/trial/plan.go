package trial

// Target is a package that is changed, and the packages whose tests have to notice, fastest first.
type Target struct {
	Dir    string
	Suites []Suite
}

// Suite is the tests of a package without those that match Skip.
type Suite struct{ Package, Skip string }

// rootSkip matches the root's tests of documents.
const rootSkip = "^(TestReadme|TestProse|TestDocs|TestWorkflows)"

// Plan is all that is changed.
var Plan = []Target{
	{".", []Suite{{".", rootSkip}, {"./memory", ""}, {"./handler", ""}}},
	{"memory", []Suite{{"./memory", ""}, {".", rootSkip}}},
	{"internal/batch", []Suite{{"./internal/batch", ""}}},
	{"internal/breaker", []Suite{{"./internal/breaker", ""}}},
	{"internal/opcontext", []Suite{{"./internal/opcontext", ""}, {"./internal/batch", ""}}},
	{"internal/sweep", []Suite{{"./internal/sweep", ""}}},
	{"overrides", []Suite{{"./overrides", ""}}},
	{"handler", []Suite{{"./handler", ""}}},
	{"sqlite", []Suite{{"./sqlite", ""}}},
	{"migrations", []Suite{{"./migrations", ""}}},
	{"postgres", []Suite{{"./postgres", ""}}},
	{"grpclimiter", []Suite{{"./grpclimiter", ""}}},
}

// dirs returns all packages that are changed.
func dirs() (list []string) {
	for _, t := range Plan {
		list = append(list, t.Dir)
	}
	return list
}

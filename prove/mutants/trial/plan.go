package trial

import "time"

// Target is a package that is changed, and the tests that have to notice.
type Target struct {
	Dir    string
	Suites []Suite // are tried one after another
}

// Suite is the tests of a package.
type Suite struct {
	Package string
	Only    string        // matches those that are used; empty: all
	Skip    string        // matches those that are not used; empty: none
	Takes   time.Duration // about, on two cores
}

// documents matches the root's tests of documents and workflows.
const documents = "^Test(Snippets|TheGuides|Speeds|Pages|TheRecipe|TheReadme|Tables|PlainSentences|NamesOf|Prose|Links|Markdown|" +
	"Comments|Workflow|ListsOf)"

// onStores matches the tests of a store that need what the packages below it do.
const onStores = "OnAnyRow|^TestRows|Meet|BusyKey|AllowAll|GrantExactly|Stats|Leave|TimeLimit|Locked|Sweep"

// Plan is all that is changed.
var Plan = []Target{
	{".", []Suite{
		{Package: ".", Skip: documents, Takes: 30 * time.Second},
		{Package: "./memory", Takes: 5 * time.Second},
		{Package: "./handler", Takes: 5 * time.Second},
	}},
	{"memory", []Suite{{Package: "./memory", Takes: 5 * time.Second}, {Package: ".", Skip: documents, Takes: 30 * time.Second}}},
	{"internal/batch", []Suite{{Package: "./internal/batch", Takes: 2 * time.Second}}},
	{"internal/breaker", below("./internal/breaker")},
	{"internal/opcontext", []Suite{{Package: "./internal/opcontext", Takes: time.Second}}},
	{"internal/sweep", below("./internal/sweep")},
	{"borrow", []Suite{{Package: "./borrow", Takes: 5 * time.Second}}},
	{"overrides", []Suite{{Package: "./overrides", Takes: 5 * time.Second}}},
	{"handler", []Suite{{Package: "./handler", Takes: 5 * time.Second}}},
	{"handler/awslambda", []Suite{{Package: "./handler/awslambda", Takes: 5 * time.Second}}},
	{"middleware", []Suite{
		{Package: "./middleware", Takes: time.Second},
		{Package: "./handler", Takes: 5 * time.Second},
		{Package: "./grpclimiter", Takes: 5 * time.Second},
	}},
	{"grpclimiter", []Suite{{Package: "./grpclimiter", Takes: 5 * time.Second}}},
	// The tests of overrides read the overrides through a Store of both packages.
	{"sqlite", []Suite{{Package: "./sqlite", Takes: time.Minute}, {Package: "./overrides", Takes: 5 * time.Second}}},
	{"migrations", []Suite{{Package: "./migrations", Takes: time.Minute}}},
	// TestRefusalsWriteNoWAL measures the WAL of the server, and other tests write at the same time.
	{"postgres", []Suite{{Package: "./postgres", Skip: "^TestRefusalsWriteNoWAL$", Takes: 5 * time.Minute}, {Package: "./overrides", Takes: 5 * time.Second}}},
}

// below returns the suites of a package that both stores use.
func below(pkg string) []Suite {
	return []Suite{
		{Package: pkg, Takes: 2 * time.Second},
		{Package: "./sqlite", Only: onStores, Takes: 30 * time.Second},
		{Package: "./postgres", Only: onStores, Takes: time.Minute},
	}
}

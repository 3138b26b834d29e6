package main

import (
	"fmt"
	"regexp"
	"strings"
)

// Mutant is a bug that is planted in the code to see whether a check finds it.
type Mutant struct {
	// Name is what -run selects it by.
	Name string
	// CI is whether it is in tier ci, which every change has to pass. Each group of the
	// catalog has at least one.
	CI bool
	// Bug is what it breaks, in one sentence without its full stop.
	Bug string
	// Found is the addresses of where others had the same bug, if any are known.
	Found []string
	Edits []Edit
	Check Check
	// Also is further checks, of other layers. Each of them has to find the mutant, too.
	Also []Check
}

func (m Mutant) checks() []Check { return append([]Check{m.Check}, m.Also...) }

// Edit replaces a text that a file of the repository has exactly once.
type Edit struct{ File, Old, New string }

// Check is the tests that find a mutant.
type Check struct {
	Package string // from the root of the repository: "./postgres"
	Run     string // as for go test -run
	// Says is a part of what the tests say when they fail for the reason that is meant.
	Says string
	Args []string // for the test program
}

// id is the same for checks that do the same.
func (c Check) id() string {
	return strings.Join(append([]string{c.Package, c.Run}, c.Args...), " ")
}

// command is what a reader can type to run the check.
func (c Check) command() string {
	words := []string{"go test", c.Package, "-run", "'" + c.Run + "'"}
	return strings.Join(append(words, c.Args...), " ")
}

// reference finds what an issue, a pull request or a CVE is called in its address.
var reference = regexp.MustCompile(`^https://(?:github\.com/([^/]+/[^/]+)/(issues|pull)/(\d+)|nvd\.nist\.gov/vuln/detail/(CVE-\d+-\d+))$`)

// nameOf returns what the bug at an address is called: "svix/diom#115".
func nameOf(address string) (string, error) {
	m := reference.FindStringSubmatch(address)
	switch {
	case m == nil:
		return "", fmt.Errorf("%s is no issue, pull request or CVE", address)
	case m[4] != "":
		return m[4], nil
	}
	return m[1] + "#" + m[3], nil
}

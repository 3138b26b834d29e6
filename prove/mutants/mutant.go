package main

import "strings"

// Mutant is a bug that is planted in the code to see whether the tests find it.
type Mutant struct {
	Name string
	// CI is whether it is in tier ci, which every change has to pass.
	CI bool
	// Bug says in one sentence what it breaks.
	Bug    string
	Edits  []Edit
	Checks []Check // each of them has to find the mutant
}

// Edit replaces a text that a file of the repository has exactly once.
type Edit struct{ File, Old, New string }

// Check is a test that finds a mutant.
type Check struct {
	Package string // from the root of the repository: "./postgres"
	Run     string // as for go test -run
	// Says is a part of the message of the test if it fails for the right reason.
	Says string
}

// args returns the flags of the test program. The fault harness runs one short round.
func (c Check) args() []string {
	if c.Package != "./prove" {
		return nil
	}
	return []string{"-tier=ci", "-fraction=0.001", "-calls=15", "-report="}
}

// command is what a reader can type to run the check.
func (c Check) command() string {
	words := []string{"go test", c.Package, "-run", "'" + c.Run + "'"}
	return strings.Join(append(words, c.args()...), " ")
}

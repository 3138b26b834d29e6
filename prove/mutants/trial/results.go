package trial

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const identityColumns = 6

// Text returns results as a table with one line for each mutant, sorted: its identity, the outcome,
// and the test.
func Text(results []Result) string {
	var lines []string
	for _, r := range results {
		lines = append(lines, r.Mutant.Identity()+"\t"+r.Outcome+"\t"+r.Test)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// Write writes results to a file.
func Write(file string, results []Result) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(Text(results)), 0o644)
}

// Known is the mutants that may survive, by their identities, and why. A file has an identity and the reason in each line.
type Known map[string]string

// ReadKnown reads a list of such mutants. Empty lines, and lines that begin with #, mean nothing.
func ReadKnown(file string) (Known, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	known := Known{}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if n := strings.Count(line, "\t"); n != identityColumns {
			return nil, fmt.Errorf("line %d of %s has %d columns, want %d", i+1, file, n+1, identityColumns+1)
		}
		reason := strings.LastIndexByte(line, '\t')
		known[line[:reason]] = line[reason+1:]
	}
	return known, nil
}

// Unknown returns the results that are decided, not killed and not known, of packages and SQL files that are listed.
func (k Known) Unknown(results []Result) (unknown []Result) {
	for _, r := range results {
		if _, ok := k[r.Mutant.Identity()]; !ok && r.Outcome != Killed && r.Outcome != Undecided && k.lists(r.Mutant.Dir, r.Mutant.File) {
			unknown = append(unknown, r)
		}
	}
	return unknown
}

// lists reports whether the list has a mutant of the package in dir, or of one of the files. If it has one,
// it has all of that package or file. So a package can have some of its SQL files listed.
func (k Known) lists(dir string, files ...string) bool {
	for id := range k {
		if file, _, _ := strings.Cut(id, "\t"); path.Dir(file) == dir || slices.Contains(files, file) {
			return true
		}
	}
	return false
}

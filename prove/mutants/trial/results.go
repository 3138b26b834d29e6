package trial

import (
	"fmt"
	"io"
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

// Line is a line of such a table.
type Line struct{ Outcome, Test string }

// Write writes results to a file.
func Write(file string, results []Result) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(Text(results)), 0o644)
}

// Read reads a table. Its keys are identities.
func Read(file string) (map[string]Line, error) {
	lines := map[string]Line{}
	return lines, read(file, 2, func(id string, more []string) { lines[id] = Line{more[0], more[1]} })
}

// read calls f for each line of a file with an identity and the columns that follow it. Empty lines, and
// lines that begin with #, mean nothing.
func read(file string, columns int, f func(id string, more []string)) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != identityColumns+columns {
			return fmt.Errorf("line %d of %s has %d columns, want %d", i+1, file, len(fields), identityColumns+columns)
		}
		f(strings.Join(fields[:identityColumns], "\t"), fields[identityColumns:])
	}
	return nil
}

// Compare prints which mutants were killed in an old table and are not in a new one. It fails if
// there is any. It also counts the mutants that only one of the tables has.
func Compare(w io.Writer, before, after string) error {
	was, err := Read(before)
	if err != nil {
		return err
	}
	is, err := Read(after)
	if err != nil {
		return err
	}
	var lost []string
	gone, killed := 0, 0
	for id, old := range was {
		now, ok := is[id]
		switch {
		case !ok:
			gone++
		case old.Outcome == Killed && now.Outcome != Killed:
			lost = append(lost, fmt.Sprintf("%s\n    was killed by %s, now: %s", id, old.Test, now.Outcome))
		case old.Outcome != Killed && now.Outcome == Killed:
			killed++
		}
	}
	slices.Sort(lost)
	for _, l := range lost {
		fmt.Fprintln(w, l)
	}
	fmt.Fprintf(w, "%d mutants are killed no longer, %d are killed now; %d are gone, %d are new\n",
		len(lost), killed, gone, len(is)-(len(was)-gone))
	if len(lost) > 0 {
		return fmt.Errorf("%d mutants that were killed before are not killed now", len(lost))
	}
	return nil
}

// Known is the mutants that may survive, by their identities, and why.
type Known map[string]string

// ReadKnown reads a list of mutants that may survive: an identity in each line, and in one more
// column the reason. Empty lines, and lines that begin with #, mean nothing.
func ReadKnown(file string) (Known, error) {
	known := Known{}
	return known, read(file, 1, func(id string, more []string) { known[id] = more[0] })
}

// Unknown returns the results that are not killed and not known, of packages and SQL files that are listed.
func (k Known) Unknown(results []Result) (unknown []Result) {
	for _, r := range results {
		if _, ok := k[r.Mutant.Identity()]; !ok && r.Outcome != Killed && k.lists(r.Mutant.Dir, r.Mutant.File) {
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

package trial

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

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
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	known := Known{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			fields := strings.Split(line, "\t")
			if len(fields) != identityColumns+1 {
				return nil, fmt.Errorf("%s: %q has %d columns, want %d", file, line, len(fields), identityColumns+1)
			}
			known[strings.Join(fields[:identityColumns], "\t")] = fields[identityColumns]
		}
	}
	return known, nil
}

// Unknown returns the results that are not killed and not known, of packages and SQL files that are listed.
func (k Known) Unknown(results []Result) (unknown []Result) {
	for _, r := range results {
		if _, ok := k[r.Mutant.Identity()]; !ok && r.Outcome != Killed && (k.lists(r.Mutant.Dir) || k.listsFile(r.Mutant.File)) {
			unknown = append(unknown, r)
		}
	}
	return unknown
}

// lists reports whether the list has a mutant of the package in dir. If it has one, it has all.
func (k Known) lists(dir string) bool {
	for id := range k {
		if file, _, _ := strings.Cut(id, "\t"); path.Dir(file) == dir {
			return true
		}
	}
	return false
}

// listsFile reports whether the list has a mutant of a file. If it has one, it has all of that file. So a
// package can have some of its SQL files listed.
func (k Known) listsFile(name string) bool {
	for id := range k {
		if file, _, _ := strings.Cut(id, "\t"); file == name {
			return true
		}
	}
	return false
}

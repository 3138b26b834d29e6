package trial

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// identityColumns is how many columns an identity has.
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

// Read reads a table. Its keys are identities.
func Read(file string) (map[string]Line, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	lines := map[string]Line{}
	for i, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		fields := strings.Split(line, "\t")
		n := len(fields) - 2
		if n != identityColumns {
			return nil, fmt.Errorf("line %d of %s has %d columns, want %d", i+1, file, n+2, identityColumns+2)
		}
		lines[strings.Join(fields[:n], "\t")] = Line{fields[n], fields[n+1]}
	}
	return lines, nil
}

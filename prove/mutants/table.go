package main

import (
	"fmt"
	"os"
	"strings"
)

// The table stands in the README between these.
const (
	tableBegins = "<!-- begin: go run ./prove/mutants -update -->\n"
	tableEnds   = "<!-- end -->\n"
)

// table is the mutants in Markdown.
func table(mutants []Mutant) (string, error) {
	var b strings.Builder
	b.WriteString("| mutant | the bug | who had it | killed by |\n|---|---|---|---|\n")
	for _, m := range mutants {
		var found []string
		for _, address := range m.Found {
			name, err := nameOf(address)
			if err != nil {
				return "", fmt.Errorf("%s: %w", m.Name, err)
			}
			found = append(found, fmt.Sprintf("[%s](%s)", name, address))
		}
		var checks []string
		for _, check := range m.checks() {
			// A bar would end the cell, also within a span of code.
			checks = append(checks, "`"+strings.ReplaceAll(check.Package+" "+check.Run, "|", `\|`)+"`")
		}
		name := "`" + m.Name + "`"
		if m.CI {
			name += " (ci)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, m.Bug, strings.Join(found, ", "), strings.Join(checks, "; "))
	}
	return b.String(), nil
}

// withTable returns a text with the table between its marks.
func withTable(text string, mutants []Mutant) (string, error) {
	before, rest, begins := strings.Cut(text, tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return "", fmt.Errorf("there is no place for the table between %q and %q", tableBegins, tableEnds)
	}
	rows, err := table(mutants)
	if err != nil {
		return "", err
	}
	return before + tableBegins + rows + tableEnds + after, nil
}

// updateReadme writes the table into a file.
func updateReadme(file string, mutants []Mutant) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	updated, err := withTable(string(text), mutants)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(updated), 0o644)
}

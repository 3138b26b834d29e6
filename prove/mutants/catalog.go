package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed catalog.txt
var catalogText string

// parse reads the mutants of a catalog, by group. The README describes the format.
func parse(text string) (groups [][]Mutant, err error) {
	var m *Mutant
	for n, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") {
			word, rest = line[:1], line[1:]
		}
		switch {
		case line == "":
		case word == "#":
			groups = append(groups, nil)
		case word == "==" && len(groups) > 0:
			last := &groups[len(groups)-1]
			name, ci := strings.CutSuffix(rest, " (ci)")
			*last = append(*last, Mutant{Name: name, CI: ci})
			m = &(*last)[len(*last)-1]
		case m == nil || !m.set(word, rest):
			return nil, fmt.Errorf("line %d of the catalog is unknown, or in the wrong place: %q", n+1, line)
		}
	}
	for _, group := range groups {
		for _, m := range group {
			for i := range m.Edits {
				e := &m.Edits[i]
				e.Old, e.New = strings.TrimSuffix(e.Old, "\n"), strings.TrimSuffix(e.New, "\n")
			}
		}
	}
	return groups, nil
}

// set sets what a line of the catalog says of the mutant. It returns false if the line makes no
// sense here.
func (m *Mutant) set(word, rest string) bool {
	switch word {
	case "bug:":
		m.Bug = rest
	case "found:": // for readers
	case "edit:":
		m.Edits = append(m.Edits, Edit{File: rest})
	case "check:":
		pkg, run, ok := strings.Cut(rest, " ")
		m.Checks = append(m.Checks, Check{Package: pkg, Run: run})
		return ok
	case "says:":
		if len(m.Checks) == 0 {
			return false
		}
		m.Checks[len(m.Checks)-1].Says = rest
	case "-", "+":
		if len(m.Edits) == 0 {
			return false
		}
		e := &m.Edits[len(m.Edits)-1]
		part := &e.Old
		if word == "+" {
			part = &e.New
		}
		*part += rest + "\n"
	default:
		return false
	}
	return true
}

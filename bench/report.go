package main

import (
	"fmt"
	"strings"
	"time"
)

// section is a table, and the targets of its figures.
type section struct {
	title   string
	about   string // what was done
	columns []string
	text    int        // how many of the columns are text; the others are figures
	rows    [][]string // as many cells each
	targets []target
	after   string // a sentence below the table
}

// target is a bound, and the figure that has to keep to it.
type target struct {
	about  string // what the figure is, and its bound
	figure string
	met    bool
}

func (t target) verdict() string {
	if t.met {
		return "met"
	}
	return "MISSED"
}

func (s section) verdicts() string {
	list := make([]string, len(s.targets))
	for i, t := range s.targets {
		list[i] = fmt.Sprintf("%s: %s, %s", t.about, t.figure, t.verdict())
	}
	return strings.Join(list, "; ")
}

func (s section) markdown() string {
	var b strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	fmt.Fprintf(&b, "### %s\n\n", s.title)
	if s.about != "" {
		fmt.Fprintf(&b, "%s\n\n", s.about)
	}
	line(s.columns...)
	fmt.Fprintf(&b, "|%s%s\n", strings.Repeat("---|", s.text), strings.Repeat("---:|", len(s.columns)-s.text))
	for _, row := range s.rows {
		line(row...)
	}
	if len(s.targets) > 0 {
		b.WriteString("\n| target | measured | |\n|---|---:|---|\n")
	}
	for _, t := range s.targets {
		line(t.about, t.figure, t.verdict())
	}
	if s.after != "" {
		fmt.Fprintf(&b, "\n%s\n", s.after)
	}
	return b.String()
}

// report returns all that is to be known of a study.
func report(title, environment string, o options, began time.Time, sections []section) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s, measured on %s\n\n%s- Method: %d rounds. A case runs for %v in each round, after a warm-up of %v. Cases that are compared take turns.\n",
		title, began.UTC().Format(time.DateOnly), environment, o.rounds, o.length, o.warm())
	for _, s := range sections {
		b.WriteString("\n" + s.markdown())
	}
	return b.String()
}

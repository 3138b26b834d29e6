package main

import (
	"fmt"
	"strings"
	"time"
)

// section is what was measured of one question.
type section struct {
	title   string
	about   string     // what was done
	columns []string   // the first is text, the others are figures
	rows    [][]string // as many cells each
	targets []target
}

// target is a bound, and the figure that has to keep to it.
type target struct {
	about  string // what the figure is, and its bound
	figure string
	met    bool
}

// verdict says whether the target is met.
func (t target) verdict() string {
	if t.met {
		return "met"
	}
	return "MISSED"
}

// verdicts returns all targets of the section on one line.
func (s section) verdicts() string {
	list := make([]string, len(s.targets))
	for i, t := range s.targets {
		list[i] = fmt.Sprintf("%s: %s, %s", t.about, t.figure, t.verdict())
	}
	return strings.Join(list, "; ")
}

// markdown returns the section for people.
func (s section) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s\n\n", s.title, s.about)
	fmt.Fprintf(&b, "| %s |\n|---|%s\n", strings.Join(s.columns, " | "), strings.Repeat("---:|", len(s.columns)-1))
	for _, row := range s.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	b.WriteString("\n| target | measured | |\n|---|---:|---|\n")
	for _, t := range s.targets {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", t.about, t.figure, t.verdict())
	}
	return b.String()
}

// report returns all that is to be known of a run.
func report(environment string, began time.Time, sections []section) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## Growth, measured on %s\n\n%s", began.UTC().Format(time.DateOnly), environment)
	for _, s := range sections {
		b.WriteString("\n" + s.markdown())
	}
	return b.String()
}

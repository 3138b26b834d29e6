package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// longest is how long a check may take. Most take a second or two.
const longest = time.Minute

// plantCatalog plants the bugs of the catalog.
func plantCatalog(ctx context.Context, o options) error {
	groups, err := parse(catalogText)
	if err != nil {
		return err
	}
	mutants, err := selection(slices.Concat(groups...), o.tier, o.names)
	if err != nil {
		return err
	}
	if o.list {
		for _, m := range mutants {
			fmt.Printf("%s: %s\n", m.Name, m.Bug)
			for _, check := range m.Checks {
				fmt.Printf("    %s\n", check.command())
			}
		}
		return nil
	}
	return inPlace(ctx, func(root, dir string, env []string) error {
		began := time.Now()
		c := campaign{
			tests: tests{root, env, longest}, dir: dir, parallel: max(1, o.jobs), times: max(1, o.times),
			report: func(r Result) { show(r, o.verbose) },
		}
		return sum(c.run(ctx, mutants), time.Since(began))
	})
}

// selection returns the mutants of a tier whose names match a regular expression.
func selection(mutants []Mutant, tier, names string) ([]Mutant, error) {
	if tier != "ci" && tier != "all" {
		return nil, fmt.Errorf("-tier is %q; it must be ci or all", tier)
	}
	wanted, err := regexp.Compile(names)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var selected []Mutant
	for _, m := range mutants {
		if wanted.MatchString(m.Name) && (m.CI || tier == "all") {
			selected = append(selected, m)
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("no mutant in tier %s matches %q; -list shows the names", tier, names)
	}
	return selected, nil
}

// show prints one result.
func show(r Result, verbose bool) {
	fmt.Printf("%-12s %5.1f s  %s\n", r.Outcome, r.Took.Seconds(), r.Mutant.Name)
	if r.Outcome != Killed || verbose {
		fmt.Printf("    %s\n%s\n", r.Mutant.Bug, indent(ending(r.Said)))
	}
}

// shown is how many lines of what a check said are shown.
const shown = 60

// ending returns the last lines of a text.
func ending(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-shown):], "\n")
}

func indent(s string) string { return "        " + strings.ReplaceAll(s, "\n", "\n        ") }

// sum prints how many mutants were killed, and returns an error unless all were.
func sum(results []Result, took time.Duration) error {
	alive := 0
	for _, r := range results {
		if r.Outcome != Killed {
			alive++
		}
	}
	fmt.Printf("%d of %d mutants killed in %.0f s\n", len(results)-alive, len(results), took.Seconds())
	if alive > 0 {
		return fmt.Errorf("%d of %d mutants were not killed", alive, len(results))
	}
	return nil
}

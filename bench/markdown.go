package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sqlimit/limiter/bench/internal/stats"
)

// markdown returns all of the outcome for people: a table for each scenario, and one of ratios.
func (o *outcome) markdown() string {
	var b strings.Builder
	done := make(map[string]bool)
	for _, g := range o.groups {
		if sc := g[0].scenario; !done[sc.name] {
			done[sc.name] = true
			o.writeScenario(&b, sc)
		}
	}
	o.writeRatios(&b)
	return b.String()
}

func (o *outcome) writeScenario(b *strings.Builder, sc scenario) {
	fmt.Fprintf(b, "### %s: %s\n\n", sc.name, sc.about)
	b.WriteString("| limiter | state is in | callers | decisions/s | lowest to highest | p50 | p99 |\n")
	b.WriteString("|---|---|---:|---:|---:|---:|---:|\n")
	for _, contender := range contenders {
		for _, g := range o.groups {
			for _, c := range g {
				if c.scenario.name == sc.name && c.contender.name == contender.name {
					o.writeCase(b, c)
				}
			}
		}
	}
	b.WriteString("\n")
}

func (o *outcome) writeCase(b *strings.Builder, c testCase) {
	s := o.of(c)
	callers := strconv.Itoa(c.callers)
	if c.contender.rows > 0 {
		callers = fmt.Sprintf("%d × %d rows", batchers, c.contender.rows)
	}
	fmt.Fprintf(b, "| %s | %s | %s | ", c.contender.title, c.contender.backend, callers)
	if s.err != nil || len(s.rates) == 0 {
		b.WriteString("failed | | | |\n")
		return
	}
	r := s.rate()
	fmt.Fprintf(b, "%s | %s to %s | %s | %s |\n", stats.Thousands(r.Median), stats.Thousands(r.Low), stats.Thousands(r.High),
		stats.Duration(s.latencies.Quantile(0.5)), stats.Duration(s.latencies.Quantile(0.99)))
}

// writeRatios writes the ratios of which at least one was measured.
func (o *outcome) writeRatios(b *strings.Builder) {
	var columns []comparison
	for _, c := range comparisons {
		for _, g := range o.groups {
			if _, ok := o.ratio(c, g); ok {
				columns = append(columns, c)
				break
			}
		}
	}
	if len(columns) == 0 {
		return
	}
	b.WriteString("### Ratios\n\nThe rate of limiter divided by the rate of another in the same round: median (lowest to highest).\n\n| scenario | callers |")
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.title)
	}
	b.WriteString("\n|---|---:|" + strings.Repeat("---:|", len(columns)) + "\n")
	for _, g := range o.groups {
		if callersOf(g) == 0 {
			continue
		}
		fmt.Fprintf(b, "| %s | %d |", g[0].scenario.name, callersOf(g))
		for _, c := range columns {
			if r, ok := o.ratio(c, g); ok {
				fmt.Fprintf(b, " %s |", r.Text(stats.TwoDigits))
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

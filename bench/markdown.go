package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
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
	b.WriteString("| limiter | state in | callers | decisions/s | lowest to highest | p50 | p99 |\n")
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
	fmt.Fprintf(b, "%s | %s to %s | %s | %s |\n", thousands(r.median), thousands(r.low), thousands(r.high),
		duration(s.latencies.quantile(0.5)), duration(s.latencies.quantile(0.99)))
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
	b.WriteString("### Ratios\n\nDecisions a second of limiter by those of another in the same round: median (lowest to highest).\n\n| scenario | callers |")
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
				fmt.Fprintf(b, " %s (%s to %s) |", twoDigits(r.median), twoDigits(r.low), twoDigits(r.high))
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// thousands returns a count with three digits that are right, as more would not be.
func thousands(v float64) string {
	if math.IsNaN(v) || v < 0 {
		return "-"
	}
	if v >= 1000 {
		unit := math.Pow(10, math.Floor(math.Log10(v))-2)
		v = math.Round(v/unit) * unit
	}
	digits := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// duration returns a time with two digits.
func duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < time.Millisecond:
		return twoDigits(float64(d)/float64(time.Microsecond)) + " µs"
	case d < time.Second:
		return twoDigits(float64(d)/float64(time.Millisecond)) + " ms"
	}
	return twoDigits(d.Seconds()) + " s"
}

// twoDigits returns a number with two digits that are right, and all of those before the point.
func twoDigits(v float64) string {
	decimals := 0
	for limit := 9.95; v > 0 && v < limit && decimals < 4; limit /= 10 {
		decimals++
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

package main

import (
	"fmt"
	"io"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

// progress prints a line for each case that is done.
type progress struct {
	out                 io.Writer
	done, total, rounds int
}

func newProgress(out io.Writer, groups []group, rounds int) *progress {
	p := &progress{out: out, rounds: rounds}
	for _, g := range groups {
		p.total += len(g) * rounds
	}
	return p
}

func (p *progress) end(round int, c testCase, m load.Measurement, err error) {
	p.done++
	result := stats.Thousands(m.Rate) + "/s"
	if err != nil {
		result = "failed: " + err.Error()
	}
	fmt.Fprintf(p.out, "%d/%d, round %d of %d, %s, %d callers: %s: %s\n", p.done, p.total, round+1, p.rounds, c.scenario.name, c.callers, c.contender.title, result)
}

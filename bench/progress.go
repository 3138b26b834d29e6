package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

// progress prints how far the run is: on one line of a terminal, otherwise on a line per case.
type progress struct {
	out         io.Writer
	terminal    bool
	done, total int
	rounds      int
	began       time.Time
	line        string
}

func newProgress(out *os.File, groups []group, rounds int) *progress {
	p := &progress{out: out, rounds: rounds, began: time.Now()}
	for _, g := range groups {
		p.total += len(g) * rounds
	}
	if info, err := out.Stat(); err == nil {
		p.terminal = info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *progress) begin(round int, c testCase) {
	p.line = fmt.Sprintf("%d/%d, round %d of %d, %s, %d callers: %s", p.done+1, p.total, round+1, p.rounds, c.scenario.name, c.callers, c.contender.title)
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s ... %s left", p.line, p.left())
	}
}

func (p *progress) end(m load.Measurement, err error) {
	p.done++
	result := stats.Thousands(m.Rate) + "/s"
	if err != nil {
		result = "failed: " + err.Error()
	}
	switch {
	case !p.terminal || err != nil:
		if p.terminal {
			fmt.Fprint(p.out, "\r\x1b[K")
		}
		fmt.Fprintf(p.out, "%s: %s\n", p.line, result)
	case p.done == p.total:
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// left estimates from the cases that are done.
func (p *progress) left() time.Duration {
	if p.done == 0 {
		return 0
	}
	each := time.Since(p.began) / time.Duration(p.done)
	return (each * time.Duration(p.total-p.done)).Round(time.Second)
}

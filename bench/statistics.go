package main

import (
	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

// series is what a case gave in all rounds.
type series struct {
	rates     map[int]float64 // decisions a second by round
	latencies stats.Histogram // of all rounds
	err       error
}

func (s *series) add(round int, m load.Measurement, err error) {
	if err != nil {
		s.err = err
		return
	}
	s.rates[round] = m.Rate
	s.latencies.Merge(&m.Latencies)
}

// rate returns the spread over the rounds.
func (s *series) rate() stats.Spread {
	values := make([]float64, 0, len(s.rates))
	for _, v := range s.rates {
		values = append(values, v)
	}
	return stats.SpreadOf(values)
}

// over returns the spread of the ratio to other in each round: what changes from round to round, such
// as a neighbor's load, met both.
func (s *series) over(other *series) stats.Spread {
	var values []float64
	for round, v := range s.rates {
		if w := other.rates[round]; w > 0 {
			values = append(values, v/w)
		}
	}
	return stats.SpreadOf(values)
}

// caseID tells cases apart.
type caseID struct {
	scenario  string
	callers   int
	contender string
}

// outcome is the series of every case.
type outcome struct {
	groups []group
	series map[caseID]*series
}

func newOutcome(groups []group) *outcome {
	o := &outcome{groups: groups, series: make(map[caseID]*series)}
	for _, g := range groups {
		for _, c := range g {
			o.series[c.id()] = &series{rates: make(map[int]float64)}
		}
	}
	return o
}

func (c testCase) id() caseID { return caseID{c.scenario.name, c.callers, c.contender.name} }

func (o *outcome) of(c testCase) *series { return o.series[c.id()] }

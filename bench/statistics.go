package main

import (
	"math"
	"slices"
)

// series is what a case gave in all rounds.
type series struct {
	rates     map[int]float64 // decisions a second by round
	latencies histogram       // of all rounds
	err       error
}

func (s *series) add(round int, m measurement, err error) {
	if err != nil {
		s.err = err
		return
	}
	s.rates[round] = m.rate
	s.latencies.merge(&m.latencies)
}

// spread is a median and what lies around it.
type spread struct{ median, low, high float64 }

// spreadOf returns the spread of values; all of it is NaN if there are none.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + median) / 2
	}
	return spread{median: median, low: sorted[0], high: sorted[len(sorted)-1]}
}

// rate returns the spread over the rounds.
func (s *series) rate() spread {
	values := make([]float64, 0, len(s.rates))
	for _, v := range s.rates {
		values = append(values, v)
	}
	return spreadOf(values)
}

// over returns the spread of the ratio to other in each round: what changes from round to round, such
// as a neighbor's load, met both.
func (s *series) over(other *series) spread {
	var values []float64
	for round, v := range s.rates {
		if w := other.rates[round]; w > 0 {
			values = append(values, v/w)
		}
	}
	return spreadOf(values)
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

package main

import (
	"errors"
	"testing"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

func TestRatiosAreOfTheSameRound(t *testing.T) {
	t.Parallel()
	ours := &series{rates: map[int]float64{0: 10, 1: 20, 2: 300}}
	peer := &series{rates: map[int]float64{0: 5, 1: 10, 2: 100, 3: 1}}
	if got, want := ours.over(peer), (stats.Spread{Median: 2, Low: 2, High: 3}); got != want {
		t.Errorf("over = %v, want %v", got, want)
	}
}

func TestSeriesThatFailedSaysSo(t *testing.T) {
	t.Parallel()
	s := &series{rates: make(map[int]float64)}
	s.add(0, load.Measurement{Rate: 5}, nil)
	s.add(1, load.Measurement{Rate: 6}, errors.New("broken"))
	if s.err == nil || len(s.rates) != 1 || s.rates[0] != 5 {
		t.Errorf("series = %v, %v, want the first round and the error", s.rates, s.err)
	}
}

package main

import (
	"errors"
	"math"
	"testing"
)

func TestSpread_has_the_median_and_both_ends(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{[]float64{7}, spread{7, 7, 7}},
		{[]float64{3, 1, 2}, spread{2, 1, 3}},
		{[]float64{4, 1, 3, 2}, spread{2.5, 1, 4}},
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("spreadOf(%v) = %v, want %v", c.values, got, c.want)
		}
	}
	if got := spreadOf(nil); !math.IsNaN(got.median) {
		t.Errorf("spreadOf(nil) = %v, want NaN", got)
	}
}

func TestRatios_are_of_the_same_round(t *testing.T) {
	t.Parallel()
	ours := &series{rates: map[int]float64{0: 10, 1: 20, 2: 300}}
	peer := &series{rates: map[int]float64{0: 5, 1: 10, 2: 100, 3: 1}}
	if got, want := ours.over(peer), (spread{2, 2, 3}); got != want {
		t.Errorf("over = %v, want %v", got, want)
	}
}

func TestSeries_that_failed_says_so(t *testing.T) {
	t.Parallel()
	s := &series{rates: make(map[int]float64)}
	s.add(0, measurement{rate: 5}, nil)
	s.add(1, measurement{rate: 6}, errors.New("broken"))
	if s.err == nil || len(s.rates) != 1 || s.rates[0] != 5 {
		t.Errorf("series = %v, %v, want the first round and the error", s.rates, s.err)
	}
}

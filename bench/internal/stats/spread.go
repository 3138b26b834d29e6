package stats

import (
	"fmt"
	"math"
	"slices"
)

// Spread is a median and what lies around it.
type Spread struct{ Median, Low, High float64 }

// SpreadOf returns the spread of values; all of it is NaN if there are none.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + median) / 2
	}
	return Spread{Median: median, Low: sorted[0], High: sorted[len(sorted)-1]}
}

// Text returns the median, and in parentheses the lowest and the highest.
func (s Spread) Text(format func(float64) string) string {
	return fmt.Sprintf("%s (%s to %s)", format(s.Median), format(s.Low), format(s.High))
}

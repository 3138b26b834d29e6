// Package stats sums up figures, and puts them the way that tables have them.
package stats

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
)

// Thousands returns a count with three digits that are right, as more would not be.
func Thousands(v float64) string {
	if math.IsNaN(v) || v < 0 {
		return "-"
	}
	if v >= 1000 {
		unit := math.Pow(10, math.Floor(math.Log10(v))-2)
		v = math.Round(v/unit) * unit
	}
	return humanize.Comma(int64(math.Round(v)))
}

// Duration returns a time with two digits.
func Duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < time.Millisecond:
		return TwoDigits(float64(d)/float64(time.Microsecond)) + " µs"
	case d < time.Second:
		return TwoDigits(float64(d)/float64(time.Millisecond)) + " ms"
	}
	return TwoDigits(d.Seconds()) + " s"
}

// TwoDigits returns a number with two digits that are right, and all of those before the point.
func TwoDigits(v float64) string {
	decimals := 0
	for limit := 9.95; v > 0 && v < limit && decimals < 4; limit /= 10 {
		decimals++
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// Callers returns a number of callers.
func Callers(n int) string {
	if n == 1 {
		return "1 caller"
	}
	return fmt.Sprintf("%d callers", n)
}

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

// SpreadBy returns the spread of a figure over samples.
func SpreadBy[T any](samples []T, figure func(*T) float64) Spread {
	values := make([]float64, len(samples))
	for i := range samples {
		values[i] = figure(&samples[i])
	}
	return SpreadOf(values)
}

// Text returns the median, and in parentheses the lowest and the highest.
func (s Spread) Text(format func(float64) string) string {
	return fmt.Sprintf("%s (%s to %s)", format(s.Median), format(s.Low), format(s.High))
}

// Quantile returns a duration that a share of q of all do not exceed; 0 if there are none. They must be
// sorted.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

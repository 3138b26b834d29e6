// Package stats counts latencies, and puts figures the way that tables have them.
package stats

import (
	"fmt"
	"math"
	"math/bits"
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

// Histogram counts durations in buckets that are at most 1/32 wide, so that its quantiles are right to
// 3 %. The zero Histogram is empty.
type Histogram struct {
	counts [64 * perOctave]uint64
	total  uint64
}

// perOctave is the number of buckets between a power of two and the next.
const perOctave = 32

// bucket returns the number of the bucket that d belongs to.
func bucket(d time.Duration) int {
	ns := uint64(max(d, 0))
	if ns < perOctave {
		return int(ns)
	}
	shift := bits.Len64(ns) - bits.Len64(perOctave)
	return shift*perOctave + int(ns>>shift)
}

func lowest(bucket int) time.Duration {
	if bucket < 2*perOctave {
		return time.Duration(bucket)
	}
	shift := bucket/perOctave - 1
	return time.Duration(bucket%perOctave+perOctave) << shift
}

// Add counts d.
func (h *Histogram) Add(d time.Duration) {
	h.counts[bucket(d)]++
	h.total++
}

// Merge counts what other counted.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range &other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

// Total returns how many were counted.
func (h *Histogram) Total() uint64 { return h.total }

// Quantile returns a duration that a share of q of all do not exceed, rounded down to its bucket; 0
// if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.total))
	var seen uint64
	for i, n := range &h.counts {
		if seen += n; seen > rank || n > 0 && seen == h.total {
			return lowest(i)
		}
	}
	return 0
}

package main

import (
	"fmt"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

// summary is what a case gave in all rounds.
type summary struct {
	load.Measurement
	rate stats.Spread
}

func summarize(rounds []load.Measurement) summary {
	var s summary
	rates := make([]float64, len(rounds))
	for i := range rounds {
		rates[i] = rounds[i].Rate
		s.Requests += rounds[i].Requests
		s.Latencies.Merge(&rounds[i].Latencies)
	}
	s.rate = stats.SpreadOf(rates)
	return s
}

// cells are the decisions a second, their spread, and p50 and p99.
func (s *summary) cells() []string {
	return []string{
		stats.Thousands(s.rate.Median),
		stats.Thousands(s.rate.Low) + " to " + stats.Thousands(s.rate.High),
		stats.Duration(s.Latencies.Quantile(0.5)),
		stats.Duration(s.Latencies.Quantile(0.99)),
	}
}

func median(m *load.Measurement) time.Duration { return m.Latencies.Quantile(0.5) }
func p99(m *load.Measurement) time.Duration    { return m.Latencies.Quantile(0.99) }

// compare returns the ratio of a figure to that of the baseline in the same round: what changes from
// round to round, such as a neighbor's load, met both.
func compare(rounds, baseline []load.Measurement, figure func(*load.Measurement) time.Duration) stats.Spread {
	ratios := make([]float64, len(rounds))
	for i := range rounds {
		ratios[i] = float64(figure(&rounds[i])) / float64(figure(&baseline[i]))
	}
	return stats.SpreadOf(ratios)
}

// percent returns a share with the digits that tell it from all.
func percent(part, all int64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(all))
}

// bytesText returns a number of bytes with three digits.
func bytesText(n int64) string {
	const unit = 1024
	v, names := float64(n), []string{"B", "kB", "MB", "GB"}
	for v >= 1000 && len(names) > 1 {
		v, names = v/unit, names[1:]
	}
	decimals := 0
	if names[0] != "B" {
		for limit := 99.95; v < limit && decimals < 2; limit /= 10 {
			decimals++
		}
	}
	return fmt.Sprintf("%.*f %s", decimals, v, names[0])
}

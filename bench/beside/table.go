package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sqlimit/limiter/bench/internal/stats"
)

// title names a case.
func (o options) title(number int) string {
	return [cases]string{
		fmt.Sprintf("%d on cold keys", o.cold),
		fmt.Sprintf("%d on cold keys, %d on a hot one", o.cold, o.others),
		fmt.Sprintf("%d on cold keys, %d on others", o.cold, o.others),
		fmt.Sprintf("%d on a hot key", o.others),
		fmt.Sprintf("%d on other cold keys", o.others),
	}[number]
}

// markdown returns the results for people.
func (r *results) markdown(o options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "There are %d processes; all share the %d cold keys. Figures are medians of the rounds (lowest to highest). The ratio "+
		"compares with the first line in the same round. p99 is that of the slowest process. The last column is the CPU that the "+
		"other callers would use if a decision cost them what it costs without callers of cold keys.\n\n", o.processes, coldKeys)
	b.WriteString("| callers in each process | cold decisions/s | ratio | p99 of cold | other decisions/s | busy cores | CPU share of the others |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|\n")
	for c := range r {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", o.title(c),
			figure(r.each(func(s *round) float64 { return s[c].cold }), stats.Thousands),
			figure(r.each(func(s *round) float64 { return s[c].cold / s[alone].cold }), stats.TwoDigits),
			figure(r.each(func(s *round) float64 { return float64(s[c].p99) }), func(v float64) string { return stats.Duration(time.Duration(v)) }),
			figure(r.each(func(s *round) float64 { return s[c].others }), stats.Thousands),
			figure(r.each(func(s *round) float64 { return s[c].cores }), stats.TwoDigits),
			figure(r.each(func(s *round) float64 { return s.share(c) }), stats.TwoDigits))
	}
	hot := stats.SpreadOf(r.each(func(s *round) float64 { return s[besideHot].cold / s[besideOwn].cold }))
	fmt.Fprintf(&b, "\nBeside the hot key, cold keys get %s of the rate that they get beside as many callers of other cold keys.\n",
		hot.Text(stats.TwoDigits))
	return b.String()
}

// each returns a figure of each round.
func (r *results) each(of func(s *round) float64) []float64 {
	values := make([]float64, len(r[alone]))
	for i := range values {
		var s round
		for c := range s {
			s[c] = r[c][i]
		}
		values[i] = of(&s)
	}
	return values
}

// round is the samples of one round, by case.
type round [cases]sample

// share returns what the callers beside use of the CPU in a case.
func (s *round) share(number int) float64 {
	apart := map[int]sample{besideHot: s[onlyHot], besideOwn: s[onlyOwn]}[number]
	return s[number].others * apart.cores / apart.others / s[number].cores // NaN where there are none
}

// figure returns the median of values, and what lies around it.
func figure(values []float64, format func(float64) string) string {
	s := stats.SpreadOf(values)
	if math.IsNaN(s.Median) || s.High == 0 {
		return ""
	}
	return s.Text(format)
}

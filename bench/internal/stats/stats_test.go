package stats

import (
	"math"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/testenv"
)

func TestDigits(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		Thousands(0): "0", Thousands(12.4): "12", Thousands(999): "999", Thousands(104_876): "105,000", Thousands(math.NaN()): "-",
		Duration(0): "-", Duration(440): "440 ns", Duration(1234): "1.2 µs", Duration(45_678): "46 µs", Duration(1_250_000): "1.2 ms",
		Duration(163 * time.Millisecond): "163 ms", Duration(2 * time.Second): "2.0 s",
		TwoDigits(0): "0", TwoDigits(0.0043): "0.0043", TwoDigits(0.48): "0.48", TwoDigits(1.53): "1.5", TwoDigits(24.6): "25",
	} {
		testenv.Equal(t, got, want)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	for want, values := range map[Spread][]float64{{7, 7, 7}: {7}, {2, 1, 3}: {3, 1, 2}, {2.5, 1, 4}: {4, 1, 3, 2}} {
		testenv.Equal(t, SpreadOf(values), want, "SpreadOf", values)
	}
	testenv.Equal(t, math.IsNaN(SpreadOf(nil).Median), true, "SpreadOf(nil) is NaN:", SpreadOf(nil))
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	testenv.Equal(t, Quantile(nil, 0.5), 0, "the median of nothing")
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 4, 1: 4} {
		testenv.Equal(t, Quantile([]time.Duration{1, 2, 3, 4}, q), want, "quantile", q)
	}
}

package stats

import (
	"math"
	"testing"
	"time"
)

func TestDigits(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 12.4: "12", 999: "999", 104_876: "105,000", 1_234_567: "1,230,000", math.NaN(): "-"} {
		if got := Thousands(v); got != want {
			t.Errorf("Thousands(%v) = %q, want %q", v, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "-", 440: "440 ns", 1234: "1.2 µs", 45_678: "46 µs", 1_250_000: "1.2 ms", 163 * time.Millisecond: "163 ms", 2 * time.Second: "2.0 s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d) = %q, want %q", d, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.0043: "0.0043", 0.071: "0.071", 0.48: "0.48", 1.53: "1.5", 24.6: "25"} {
		if got := TwoDigits(v); got != want {
			t.Errorf("TwoDigits(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{[]float64{7}, Spread{7, 7, 7}},
		{[]float64{3, 1, 2}, Spread{2, 1, 3}},
		{[]float64{4, 1, 3, 2}, Spread{2.5, 1, 4}},
	} {
		if got := SpreadOf(c.values); got != c.want {
			t.Errorf("SpreadOf(%v) = %v, want %v", c.values, got, c.want)
		}
	}
	if got := SpreadOf(nil); !math.IsNaN(got.Median) {
		t.Errorf("SpreadOf(nil) = %v, want NaN", got)
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	var sorted []time.Duration
	if got := Quantile(sorted, 0.5); got != 0 {
		t.Errorf("the median of nothing is %v, want 0", got)
	}
	for i := range 1000 {
		sorted = append(sorted, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 0, 0.5: 500, 0.99: 990, 1: 999} {
		if got := Quantile(sorted, q); got != want {
			t.Errorf("quantile %v = %d, want %d", q, got, want)
		}
	}
}

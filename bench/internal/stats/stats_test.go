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

func TestBuckets(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, 1, 31, 32, 63, 64, 65, 127, 128, 1000, time.Millisecond, time.Hour, math.MaxInt64} {
		low := lowest(bucket(d))
		if low > d || float64(d-low) > float64(d)/perOctave {
			t.Errorf("%d is in the bucket from %d", d, low)
		}
		if d > 0 && bucket(d) < bucket(d-1) {
			t.Errorf("%d is in bucket %d, and %d in %d", d, bucket(d), d-1, bucket(d-1))
		}
	}
	if got := bucket(-1); got != 0 {
		t.Errorf("bucket(-1) = %d, want 0", got)
	}
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	var odd, even, all Histogram
	for i := range 1000 {
		h := &even
		if i%2 == 1 {
			h = &odd
		}
		h.Add(time.Duration(i) * time.Microsecond)
	}
	if got := all.Quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %v, want 0", got)
	}
	all.Merge(&odd)
	all.Merge(&even)
	for q, want := range map[float64]time.Duration{0: 0, 0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: 999 * time.Microsecond} {
		got := all.Quantile(q)
		if got > want || want-got > want/perOctave {
			t.Errorf("quantile %v = %v, want %v or up to 1/%d less", q, got, want, perOctave)
		}
	}
}

package stats

import (
	"math"
	"testing"
	"time"
)

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

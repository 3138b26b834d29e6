package stats

import (
	"math"
	"testing"
)

func TestSpreadHasTheMedianAndBothEnds(t *testing.T) {
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

package main

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

func TestTheTableComparesTheCasesOfARound(t *testing.T) {
	o := options{processes: 3, cold: 64, others: 16}
	var r results
	// In the second round the machine is half as fast: no ratio changes by that.
	for _, speed := range []float64{1, 0.5} {
		for c, s := range map[int]sample{
			alone:     {cold: 10_000, p99: 20 * time.Millisecond, cores: 2},
			besideHot: {cold: 8000, p99: 30 * time.Millisecond, others: 4000, cores: 2},
			besideOwn: {cold: 8000, p99: 25 * time.Millisecond, others: 2000, cores: 2},
			onlyHot:   {others: 8000, cores: 0.4},
			onlyOwn:   {others: 8000, cores: 1.6},
		} {
			s.cold *= speed
			s.others *= speed
			r[c] = append(r[c], s)
		}
	}
	text := r.markdown(o)
	for _, want := range []string{
		"| 64 on cold keys | 7,500 (5,000 to 10,000) | 1.0 (1.0 to 1.0) | 20 ms (20 ms to 20 ms) |  | 2.0 (2.0 to 2.0) |  |\n",
		"| 64 on cold keys, 16 on a hot one | 6,000 (4,000 to 8,000) | 0.80 (0.80 to 0.80) | 30 ms (30 ms to 30 ms) | 3,000 (2,000 to 4,000) | 2.0 (2.0 to 2.0) | 0.10 (0.10 to 0.10) |\n",
		"| 16 on other cold keys |  |  |  | 6,000 (4,000 to 8,000) | 1.6 (1.6 to 1.6) |  |\n",
		"get 1.0 (1.0 to 1.0) of the rate",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table has no line\n%s\n%s", want, text)
		}
	}
}

func TestNothingIsSaidOfACPUThatCannotBeKnown(t *testing.T) {
	if v := used(os.Getpid(), "another program"); !math.IsNaN(v) {
		t.Errorf("a process of another program used %v s", v)
	}
	var r results
	for c := range r {
		r[c] = []sample{{cold: 1, others: 1, cores: math.NaN()}}
	}
	if text := r.markdown(options{}); strings.Contains(text, "NaN") {
		t.Errorf("the table has NaN:\n%s", text)
	}
}

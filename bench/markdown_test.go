package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestNumbers_have_the_digits_that_are_right(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 12.4: "12", 999: "999", 104_876: "105,000", 1_234_567: "1,230,000", math.NaN(): "-"} {
		if got := thousands(v); got != want {
			t.Errorf("thousands(%v) = %q, want %q", v, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "-", 440: "440 ns", 1234: "1.2 µs", 45_678: "46 µs", 1_250_000: "1.2 ms", 163 * time.Millisecond: "163 ms", 2 * time.Second: "2.0 s",
	} {
		if got := duration(d); got != want {
			t.Errorf("duration(%d) = %q, want %q", d, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.0043: "0.0043", 0.071: "0.071", 0.48: "0.48", 1.53: "1.5", 24.6: "25"} {
		if got := twoDigits(v); got != want {
			t.Errorf("twoDigits(%v) = %q, want %q", v, got, want)
		}
	}
}

// example is an outcome of two rounds, in which one contender failed.
func example() *outcome {
	o := newOutcome((selection{run: regexp.MustCompile("(many|hot)/(ours-postgres$|upsert|throttled|ours-memory)"), callers: []int{64}}).plan())
	for id, s := range o.series {
		for round := range 2 {
			m := measurement{rate: 1000 * float64(round+1)}
			m.latencies.add(1 << 20) // the lowest of its bucket
			var err error
			switch id.contender {
			case "upsert-postgres":
				m.rate /= 4
			case "throttled":
				err = errors.New("gave up")
			}
			s.add(round, m, err)
		}
	}
	return o
}

func TestMarkdown_tells_rates_spreads_and_failures(t *testing.T) {
	t.Parallel()
	text := example().markdown()
	for _, want := range []string{
		"### many: 10,000 keys",
		"| limiter, PostgreSQL | PostgreSQL | 64 | 1,500 | 1,000 to 2,000 | 1.0 ms | 1.0 ms |",
		"| UPSERT by hand, PostgreSQL | PostgreSQL | 64 | 375 | 250 to 500 |",
		"| UPSERT of 256 rows: ceiling | PostgreSQL | 2 × 256 rows | 1,500 |",
		"| throttled, Redis | Redis | 64 | failed |",
		"| scenario | callers | PostgreSQL ÷ UPSERT by hand | PostgreSQL ÷ UPSERT of 256 rows |\n|---|---:|---:|---:|\n",
		"| hot | 64 | 4.0 (4.0 to 4.0) | 1.0 (1.0 to 1.0) |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestPlots_are_drawn_of_what_was_measured(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := example().plot(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"many.svg": "limiter, PostgreSQL", "many-process.svg": "limiter, memory"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if text := string(content); !strings.Contains(text, want) || strings.Contains(text, "throttled") {
			t.Errorf("%s lacks %q, or has a contender that failed", name, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "lone.svg")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("lone.svg: %v, want no such file", err)
	}
}

package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/bench/internal/load"
)

// example is an outcome of two rounds, in which one contender failed.
func example() *outcome {
	o := newOutcome((selection{run: regexp.MustCompile("(many|hot)/(ours-postgres$|upsert|throttled$|ours-memory)"), callers: []int{64}}).plan())
	for id, s := range o.series {
		for round := range 2 {
			m := load.Measurement{Rate: 1000 * float64(round+1)}
			m.Latencies.Add(1 << 20) // the lowest of its bucket
			var err error
			switch id.contender {
			case "upsert-postgres":
				m.Rate /= 4
			case "throttled":
				err = errors.New("gave up")
			}
			s.add(round, m, err)
		}
	}
	return o
}

func TestMarkdownTellsRatesSpreadsAndFailures(t *testing.T) {
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

func TestPlotsAreDrawnOfWhatWasMeasured(t *testing.T) {
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

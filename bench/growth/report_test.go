package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

func TestBytesHaveThreeDigits(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "0.98 kB", 1024: "1.00 kB", 8192: "8.00 kB", 65_536: "64.0 kB", 999 << 10: "999 kB",
		5 << 20: "5.00 MB", 1_420_000_000: "1.32 GB", 2 << 40: "2048 GB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestSharesTellAlmostAllFromAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, all int64
		want      string
	}{{0, 0, "-"}, {0, 7, "0.00 %"}, {9_999, 10_000, "99.99 %"}, {7, 7, "100.00 %"}} {
		if got := percent(c.part, c.all); got != c.want {
			t.Errorf("percent(%d, %d) = %q, want %q", c.part, c.all, got, c.want)
		}
	}
	before, after := counters{updates: 100, hot: 50}, counters{updates: 300, hot: 248}
	if got, want := after.hotShare(before), "99.00 %"; got != want {
		t.Errorf("hotShare = %q, want %q", got, want)
	}
}

// rounds have a decision each, which took so long.
func rounds(latencies ...time.Duration) []load.Measurement {
	list := make([]load.Measurement, len(latencies))
	for i, d := range latencies {
		list[i].Rate, list[i].Requests = float64(i+1), 1
		list[i].Latencies.Add(d)
	}
	return list
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	t.Parallel()
	got := compare(rounds(8, 16, 31), rounds(4, 4, 31), median)
	if want := (stats.Spread{Median: 2, Low: 1, High: 4}); got != want {
		t.Errorf("compare = %v, want %v", got, want)
	}
}

func TestSummaryIsOfAllRounds(t *testing.T) {
	t.Parallel()
	s := summarize(rounds(2, 4, 8))
	if got, want := strings.Join(s.cells(), " | "), "2 | 1 to 3 | 4 ns | 8 ns"; got != want || s.Requests != 3 {
		t.Errorf("%d requests, cells %q; want 3, %q", s.Requests, got, want)
	}
}

func TestReportSaysWhichTargetsWereMissed(t *testing.T) {
	t.Parallel()
	text := report("- Machine: this\n", time.Unix(0, 0), []section{{
		title: "A question", about: "What was done.", columns: []string{"case", "figure"}, rows: [][]string{{"one", "1"}, {"two", "2"}},
		targets: []target{{"at most 1", "1", true}, {"at most 1.5", "2", false}},
	}})
	const want = `## Growth, measured on 1970-01-01

- Machine: this

### A question

What was done.

| case | figure |
|---|---:|
| one | 1 |
| two | 2 |

| target | measured | |
|---|---:|---|
| at most 1 | 1 | met |
| at most 1.5 | 2 | MISSED |
`
	if text != want {
		t.Errorf("report:\n%s\nwant:\n%s", text, want)
	}
}

func TestParseRefusesWhatCannotBeMeasured(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-rows", "10"}, {"-takes", "0"}, {"-time", "0s"}, {"-rounds", "0"}, {"-pool", "1"}, {"-run", "("}, {"more"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%q) has no error", args)
		}
	}
	o, err := parse(nil)
	if err != nil || o.rows != 10_000_000 || o.takes != 10_000_000 || !o.run.MatchString("latency") {
		t.Errorf("parse() = %+v, %v; want ten million and all parts", o, err)
	}
}

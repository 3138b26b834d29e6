package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

// rounds have a decision each, which took so long. Their rates are 1, 2, 3 and so on.
func rounds(latencies ...time.Duration) *series {
	s := &series{}
	for i, d := range latencies {
		m := load.Measurement{Rate: float64(i + 1), Requests: 1}
		m.Latencies = append(m.Latencies, d)
		s.add(m, nil)
	}
	return s
}

func TestSeries(t *testing.T) {
	t.Parallel()
	if got, want := rounds(8, 16, 31).ratio(rounds(4, 4, 31), median), (stats.Spread{Median: 2, Low: 1, High: 4}); got != want {
		t.Errorf("the ratio within each round is %v, want %v", got, want)
	}
	s := rounds(2, 4, 8)
	if got, want := strings.Join(s.cells(), " | "), "2 | 1 to 3 | 4 ns | 8 ns"; got != want || s.total().Requests != 3 {
		t.Errorf("%d requests, cells %q; want 3, %q", s.total().Requests, got, want)
	}
	if s.add(load.Measurement{Rate: 6}, errors.New("broken")); s.err == nil || len(s.rounds) != 3 {
		t.Errorf("after a failure the series has %d rounds and the error %v, want 3 and an error", len(s.rounds), s.err)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "0.98 kB", 1024: "1.00 kB", 8192: "8.00 kB", 65_536: "64.0 kB", 999 << 10: "999 kB",
		5 << 20: "5.00 MB", 1_420_000_000: "1.32 GB", 2 << 40: "2048 GB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) = %q, want %q", n, got, want)
		}
	}
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
	names, units := merged([]string{"a", "b", "a", "c", "a"})
	if !slices.Equal(names, []string{"a", "b", "c"}) || !slices.Equal(units, []int64{3, 1, 1}) {
		t.Errorf("merged = %v, %v", names, units)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	out := []string{"-out", t.TempDir()}
	for _, args := range [][]string{
		{"-rows", "10"},
		{"-time", "0s"},
		{"-rounds", "0"},
		{"-pool", "1"},
		{"-processes", "0"},
		{"-keys", "0"},
		{"-run", "("},
		{"-callers", "x"},
		{"-pools", "-1"},
		{"more"},
	} {
		if _, err := parse(append(out, args...)); err == nil {
			t.Errorf("parse(%q) has no error", args)
		}
	}
	for length, want := range map[string]int{"3s": 10_000_000, "300ms": 100_000} {
		o, err := parse(append(out, "-time", length))
		if err != nil || o.rows != want || !o.run.MatchString("growth/latency") || !slices.Equal(o.pools, []int{2, 4, 20}) {
			t.Errorf("with -time %s the options are %+v, %v; want %d rows and all measurements", length, o, err, want)
		}
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	found := make(map[string]int)
	for _, g := range (options{run: regexp.MustCompile("")}).plan() {
		for _, c := range g {
			if c.scenario.name != g[0].scenario.name || c.contender.rows == 0 && c.callers != g.callers() {
				t.Errorf("%s of %d callers is compared with %s of %d", c.contender.name, c.callers, g[0].contender.name, g[0].callers)
			}
			if c.contender.rows > 0 {
				found[c.scenario.name]++
			}
		}
	}
	for _, sc := range scenarios {
		want := 1
		if sc.name == "lone" || sc.only != nil {
			want = 0
		}
		if found[sc.name] != want {
			t.Errorf("%s has %d ceilings, want %d", sc.name, found[sc.name], want)
		}
	}
	groups := options{run: regexp.MustCompile("^(lone|hot)/upsert-sqlite$"), callers: []int{1, 64}}.plan()
	if len(groups) != 2 || groups[0].callers() != 1 || groups[1].callers() != 64 || groups[1][0].scenario.name != "hot" {
		t.Errorf("the plan is %v, want lone with 1 caller and hot with 64", groups)
	}
	for _, c := range comparisons {
		for _, name := range []string{c.ours, c.peer} {
			if !slices.ContainsFunc(contenders, func(c contender) bool { return c.name == name }) {
				t.Errorf("%q compares with %q, which is no contender", c.title, name)
			}
		}
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	for _, sc := range scenarios {
		names := sc.keyNames("x:")
		order := sc.order(names)
		counts := make(map[string]int)
		for _, key := range order {
			counts[key]++
		}
		first, all := counts[names[0]], len(order)
		switch {
		case sc.keys == 1 && first != all:
			t.Errorf("%s: %d of %d want the only key", sc.name, first, all)
		case sc.zipf && (first < all/8 || first > all/6):
			t.Errorf("%s: %d of %d want the first key, not one in seven", sc.name, first, all)
		case !sc.zipf && len(counts) < sc.keys*99/100:
			t.Errorf("%s: %d of %d keys are wanted", sc.name, len(counts), sc.keys)
		}
	}
}

func TestWrongDecisionsFail(t *testing.T) {
	t.Parallel()
	only := slices.Repeat([]string{"a"}, load.OrderLength)
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		decider decider
		wants   bool
		rows    int
		message string
	}{
		"refused":       {decider{allow: func(context.Context, string) (bool, error) { return false, nil }}, true, 0, "want true"},
		"allowed":       {decider{allow: func(context.Context, string) (bool, error) { return true, nil }}, false, 0, "want false"},
		"error":         {decider{allow: func(context.Context, string) (bool, error) { return false, broken }}, false, 0, "broken"},
		"refused a row": {decider{batch: func(_ context.Context, keys []string) (int, error) { return len(keys) - 1, nil }}, true, 256, "255 of 256"},
		"allowed a row": {decider{batch: func(context.Context, []string) (int, error) { return 1, nil }}, false, 256, "1 of 256"},
	} {
		_, err := c.decider.load(c.wants, 1, c.rows, only).Run(t.Context(), 2, 0, time.Hour)
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.message)
		}
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	names := scenario{name: "x", keys: 1000}.keyNames("")
	var asked atomic.Int64
	d := decider{
		allow: func(context.Context, string) (bool, error) {
			asked.Add(1)
			return true, nil
		},
		batch: func(_ context.Context, keys []string) (int, error) {
			asked.Add(int64(len(keys)))
			return len(keys), nil
		},
	}
	for _, rows := range []int{0, 256} {
		asked.Store(0)
		if err := d.fill(t.Context(), names, rows); err != nil || asked.Load() != 1000 {
			t.Errorf("with %d rows, fill asks %d times, error %v; want 1000 times", rows, asked.Load(), err)
		}
	}
	d.allow = func(context.Context, string) (bool, error) { return false, nil }
	if err := d.fill(t.Context(), names, 0); err == nil {
		t.Error("a refusal did not fail the fill")
	}
}

// example is an outcome of two rounds, in which one contender failed.
func example() []group {
	groups := options{run: regexp.MustCompile("(many|hot)/(ours-postgres$|upsert|throttled$|ours-memory)"), callers: []int{64}}.plan()
	for _, g := range groups {
		for _, c := range g {
			for round := range 2 {
				m := load.Measurement{Rate: 1000 * float64(round+1)}
				m.Latencies = append(m.Latencies, time.Millisecond)
				var err error
				switch c.contender.name {
				case "upsert-postgres":
					m.Rate /= 4
				case "throttled":
					err = errors.New("gave up")
				}
				c.add(m, err)
			}
		}
	}
	return groups
}

func TestComparison(t *testing.T) {
	t.Parallel()
	text := report("Results", "- Machine: this\n", options{rounds: 2}, time.Unix(0, 0), append(tables(example()), ratios(example())...))
	for _, want := range []string{
		"## Results, measured on 1970-01-01\n\n- Machine: this\n- Method: 2 rounds.",
		"### many: 10,000 keys",
		"| limiter, PostgreSQL | PostgreSQL | 64 | 1,500 | 1,000 to 2,000 | 1.0 ms | 1.0 ms |",
		"| UPSERT by hand, PostgreSQL | PostgreSQL | 64 | 375 | 250 to 500 |",
		"| UPSERT of 256 rows: ceiling | PostgreSQL | 2 × 256 rows | 1,500 |",
		"| throttled, Redis | Redis | 64 | failed |",
		"| scenario | callers | PostgreSQL ÷ UPSERT by hand | PostgreSQL ÷ UPSERT of 256 rows |\n|---|---:|---:|---:|\n",
		"| hot | 64 | 4.0 (4.0 to 4.0) | 1.0 (1.0 to 1.0) |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no %q:\n%s", want, text)
		}
	}
	dir := t.TempDir()
	if err := plot(dir, example()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"many.svg": ">limiter, PostgreSQL<", "many-process.svg": ">limiter, memory<"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if text := string(content); err != nil || !strings.Contains(text, want) || strings.Contains(text, "throttled") {
			t.Errorf("%s lacks %q, or has a contender that failed: %v\n%s", name, want, err, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "lone.svg")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("lone.svg: %v, want no such file", err)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	text := section{
		title: "A question", about: "What was done.", columns: []string{"case", "figure"}, text: 1, rows: [][]string{{"one", "1"}, {"two", "2"}},
		targets: []target{{"at most 1", "1", true}, {"at most 1.5", "2", false}}, after: "That is all.",
	}.markdown()
	const want = `### A question

What was done.

| case | figure |
|---|---:|
| one | 1 |
| two | 2 |

| target | measured | |
|---|---:|---|
| at most 1 | 1 | met |
| at most 1.5 | 2 | MISSED |

That is all.
`
	if text != want {
		t.Errorf("the section is\n%s\nwant\n%s", text, want)
	}
}

func TestBeside(t *testing.T) {
	o := options{processes: 3, cold: 64, others: 16}
	var all []besideRound
	// In the second round the machine is half as fast: no ratio changes by that.
	for _, speed := range []float64{1, 0.5} {
		round := besideRound{
			alone:     {Cold: 10_000, P99: 20 * time.Millisecond},
			besideHot: {Cold: 8000, P99: 30 * time.Millisecond, Others: 4000},
			besideOwn: {Cold: 8000, P99: 25 * time.Millisecond, Others: 2000},
			onlyHot:   {Others: 8000},
			onlyOwn:   {Others: 8000},
		}
		for c := range round {
			round[c].Cold *= speed
			round[c].Others *= speed
		}
		all = append(all, round)
	}
	text := o.besideSection(all).markdown()
	for _, want := range []string{
		"| 64 on cold keys | 7,500 (5,000 to 10,000) | 1.0 (1.0 to 1.0) | 20 ms (20 ms to 20 ms) |  |\n",
		"| 64 on cold keys, 16 on a hot one | 6,000 (4,000 to 8,000) | 0.80 (0.80 to 0.80) | 30 ms (30 ms to 30 ms) | 3,000 (2,000 to 4,000) |\n",
		"| 16 on other cold keys |  |  |  | 6,000 (4,000 to 8,000) |\n",
		"get 1.0 (1.0 to 1.0) of the rate",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table has no line\n%s\n%s", want, text)
		}
	}
}

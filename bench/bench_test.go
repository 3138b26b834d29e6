package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "0.977 kB", 8192: "8 kB", 5 << 20: "5 MB", 12_900_000: "12.3 MB", 1_420_000_000: "1.32 GB",
	} {
		testenv.Equal(t, bytesText(n), want, "bytesText of", n)
	}
	before, after := counters{updates: 100, hot: 50}, counters{updates: 300, hot: 248}
	testenv.Equal(t, [2]string{after.hotShare(before), before.hotShare(before)}, [2]string{"99.00 %", "-"}, "hotShare, and that of no update")
	names, units := merged([]string{"a", "b", "a", "c", "a"})
	testenv.Equal(t, names, []string{"a", "b", "c"}, "merged")
	testenv.Equal(t, units, []int64{3, 1, 1}, "units of", names)
}

func TestPlan(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-out", t.TempDir(), "-callers", "1,64", "-run", "^(lone|hot)/(upsert-sqlite|upsert-rows)$"})
	testenv.Must(t, err)
	var got []string
	for _, g := range o.plan() {
		for _, c := range g.cases {
			got = append(got, c.scenario.name+" "+c.contender.name)
		}
	}
	testenv.Equal(t, got, []string{"lone upsert-sqlite", "hot upsert-rows", "hot upsert-sqlite"}, "the plan")
	for _, c := range comparisons {
		for _, name := range []string{c.ours, c.peer} {
			testenv.Equal(t, slices.ContainsFunc(contenders, func(c contender) bool { return c.name == name }), true, "a contender has the name", name, "in", c.title)
		}
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	for _, sc := range scenarios {
		counts := make(map[string]int)
		names := sc.keyNames("x:")
		keys := order(names, sc.zipf)
		for _, key := range keys {
			counts[key]++
		}
		first, all := counts[names[0]], len(keys)
		if sc.zipf && (first < all/8 || first > all/6) || !sc.zipf && len(counts) < sc.keys*99/100 {
			t.Errorf("%s: %d of %d want the first of %d keys, and %d are wanted", sc.name, first, all, sc.keys, len(counts))
		}
	}
}

func TestWrongDecisionsFail(t *testing.T) {
	t.Parallel()
	only := slices.Repeat([]string{"a"}, load.OrderLength)
	answer := func(granted int, err error) decider {
		return func(context.Context, []string) (int, error) { return granted, err }
	}
	for name, c := range map[string]struct {
		decider decider
		wants   bool
		rows    int
		message string
	}{
		"refused":       {answer(0, nil), true, 1, "0 of 1 requests passed, want 1"},
		"allowed":       {answer(1, nil), false, 1, "1 of 1 requests passed, want 0"},
		"error":         {answer(0, errors.New("broken")), false, 1, "broken"},
		"refused a row": {answer(255, nil), true, 256, "255 of 256"},
		"allowed a row": {answer(1, nil), false, 256, "1 of 256"},
	} {
		_, err := c.decider.load(only, c.wants, c.rows, 1).Run(t.Context(), 2, 0, time.Hour)
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.message)
		}
	}
}

// example is an outcome of two rounds, in which one contender failed.
func example() []group {
	groups := options{run: regexp.MustCompile("(many|hot)/(ours-postgres$|upsert|throttled$|ours-memory)"), callers: []int{64}}.plan()
	for _, g := range groups {
		for _, c := range g.cases {
			for round := range 2 {
				m := load.Measurement{Rate: 1000 * float64(round+1), Latencies: []time.Duration{time.Millisecond}}
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
	groups := example()
	sections := append(tables(groups), ratios(groups)...)
	sections[0].aim(true, "1", "at most %d", 1)
	sections[0].aim(false, "2", "at most 1.5")
	text := report("Results", "- Machine: this\n", &backends{options: options{rounds: 2}, began: time.Unix(0, 0)}, sections)
	testenv.Contains(t, text,
		"## Results, measured on 1970-01-01\n\n- Machine: this\n- Method: 2 rounds.",
		"### many: 10,000 keys",
		"| limiter, PostgreSQL | PostgreSQL | 64 | 1,500 | 1,000 to 2,000 | 1.0 ms | 1.0 ms |",
		"| UPSERT by hand, PostgreSQL | PostgreSQL | 64 | 375 | 250 to 500 |",
		"| UPSERT of 256 rows: ceiling | PostgreSQL | 2 × 256 rows | 1,500 |",
		"| throttled, Redis | Redis | 64 | failed |",
		"| at most 1 | 1 | met |\n| at most 1.5 | 2 | MISSED |",
		"| scenario | callers | PostgreSQL ÷ UPSERT by hand | PostgreSQL ÷ UPSERT of 256 rows |\n|---|---:|---:|---:|\n",
		"| hot | 64 | 4.0 (4.0 to 4.0) | 1.0 (1.0 to 1.0) |",
	)
	dir := t.TempDir()
	plot(dir, groups)
	for name, want := range map[string]string{"many.svg": ">limiter, PostgreSQL<", "many-process.svg": ">limiter, memory<"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if text := string(content); err != nil || !strings.Contains(text, want) || strings.Contains(text, "throttled") {
			t.Errorf("%s lacks %q, or has a contender that failed: %v\n%s", name, want, err, text)
		}
	}
}

func TestBeside(t *testing.T) {
	t.Parallel()
	round := besideRound{
		alone:     {Cold: 10_000, P99: 20 * time.Millisecond},
		besideHot: {Cold: 8000, P99: 30 * time.Millisecond, Others: 4000},
		besideOwn: {Cold: 8000, P99: 25 * time.Millisecond, Others: 2000},
	}
	slow := round // the machine is half as fast: no ratio changes by that
	for c := range slow {
		slow[c].Cold /= 2
		slow[c].Others /= 2
	}
	s := besideSection([]besideRound{round, slow})
	testenv.Contains(t, s.markdown(),
		"| 64 on cold keys | 7,500 (5,000 to 10,000) | 1.0 (1.0 to 1.0) | 20 ms (20 ms to 20 ms) |  |\n",
		"| 64 on cold keys, 16 on a hot one | 6,000 (4,000 to 8,000) | 0.80 (0.80 to 0.80) | 30 ms (30 ms to 30 ms) | 3,000 (2,000 to 4,000) |\n",
		"get 1.0 (1.0 to 1.0) of the rate",
	)
}

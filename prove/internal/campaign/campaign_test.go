package campaign

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/internal/testenv"
)

// drawn runs a scenario of 10 rounds and returns what each round drew first.
func drawn(t *testing.T, o Options) (all []uint64) {
	t.Helper()
	c, err := New(o)
	testenv.Must(t, err)
	c.Rounds(t, "a scenario", Sizes{CI: 10, Nightly: 10, Release: 10}, func(_ *testing.T, r *Round) {
		r.Count(Operations, 1)
		all = append(all, r.Rand.Uint64())
	})
	testenv.Must(t, c.End())
	return all
}

func TestRoundAlone(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.json")
	all := drawn(t, Options{Tier: CI, Seed: 3})
	if len(all) != 10 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != 10 {
		t.Fatalf("10 rounds drew %d", all)
	}
	if alone := drawn(t, Options{Tier: CI, Seed: 3, Round: 3, Report: report}); !slices.Equal(alone, all[2:3]) {
		t.Errorf("alone, round 3 draws %d; among others %d", alone, all[2])
	}
	if _, err := os.Stat(report); err == nil {
		t.Error("a round that runs alone writes a report")
	}
}

func TestReportIsNotOverwritten(t *testing.T) {
	for _, tier := range tiers {
		o := Options{Tier: tier, Report: filepath.Join(t.TempDir(), "report.json")}
		drawn(t, o)
		if _, err := New(o); (err == nil) != (tier == CI) {
			t.Errorf("tier %s, on an old report: %v", tier, err)
		}
	}
}

func TestFraction(t *testing.T) {
	for fraction, want := range map[float64]int{0: 10, 0.31: 3, 0.01: 1, 1: 10} {
		if n := len(drawn(t, Options{Tier: Nightly, Fraction: fraction})); n != want {
			t.Errorf("a fraction of %v is %d rounds, want %d", fraction, n, want)
		}
	}
}

const failing = "LIMITER_CAMPAIGN_FAILING"

func TestFailurePrintsItsRound(t *testing.T) {
	if os.Getenv(failing) != "" {
		c, err := New(Options{Tier: CI, Seed: 7})
		testenv.Must(t, err)
		c.Rounds(t, "a scenario", Sizes{CI: 3}, func(_ *testing.T, r *Round) {
			r.None(LostTakes, int64(r.Number-1))
		})
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), failing+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "-seed=7 -round=2 ") || strings.Contains(string(out), "-round=3") {
		t.Errorf("%v\n%s", err, out)
	}
}

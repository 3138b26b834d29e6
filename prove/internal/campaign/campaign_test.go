package campaign

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fruitless is rounds that count one, and remember their seeds.
func fruitless(seeds *[]uint64) func(*testing.T, *Round) {
	return func(_ *testing.T, r *Round) {
		r.Count(Operations, 1)
		*seeds = append(*seeds, r.Rand.Uint64())
	}
}

func TestACampaignGoesOnWhereItsReportEnds(t *testing.T) {
	sizes := Sizes{CI: 3, Nightly: 5, Release: 8}
	options := Options{Tier: Release, Seed: 7, Versions: map[string]string{"go": "x"}}
	var want []uint64
	whole, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	whole.Rounds(t, "a scenario", sizes, fruitless(&want))
	if len(want) != 8 || len(slices.Compact(slices.Sorted(slices.Values(want)))) != 8 {
		t.Fatalf("8 rounds drew %d", want)
	}

	options.Report = filepath.Join(t.TempDir(), "report.json")
	first, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	first.Rounds(t, "a scenario", Sizes{Release: 8}, func(t *testing.T, r *Round) {
		if r.Number <= 5 {
			fruitless(&got)(t, r)
		}
	})
	first.report.Scenarios[0].Rounds = 5 // as if it had been interrupted there
	if err := first.report.write(options.Report); err != nil {
		t.Fatal(err)
	}
	options.Resume = true
	second, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	second.Rounds(t, "a scenario", sizes, fruitless(&got))
	if !slices.Equal(got, want) {
		t.Errorf("in two parts the rounds drew %d, in one %d", got, want)
	}
	if n := second.report.Totals[Operations]; n != 8 {
		t.Errorf("%d were counted, want 8", n)
	}
}

func TestTheReportOfALongCampaignIsNotWrittenOver(t *testing.T) {
	for _, c := range []struct {
		tier   Tier
		rounds int // of 3, in the one scenario that has begun
		spared bool
	}{
		{Release, 2, true},
		{Nightly, 2, true},
		{Release, 3, true},
		{CI, 2, false},
	} {
		options := Options{Tier: c.tier, Report: filepath.Join(t.TempDir(), "report.json")}
		first, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		first.report.scenario("a scenario", 3).Rounds = c.rounds
		if err := first.report.write(options.Report); err != nil {
			t.Fatal(err)
		}
		if _, err := New(options); (err != nil) != c.spared {
			t.Errorf("tier %s after %d of 3 rounds: %v", c.tier, c.rounds, err)
		}
	}
}

func TestAReportIsNotResumedByAnotherCampaign(t *testing.T) {
	options := Options{Tier: CI, Seed: 7, Report: filepath.Join(t.TempDir(), "report.json"), Versions: map[string]string{"go": "x"}}
	c, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.report.write(options.Report); err != nil {
		t.Fatal(err)
	}
	options.Resume = true
	for name, change := range map[string]func(*Options){
		"tier":     func(o *Options) { o.Tier = Nightly },
		"seed":     func(o *Options) { o.Seed = 8 },
		"fraction": func(o *Options) { o.Fraction = 0.5 },
		"versions": func(o *Options) { o.Versions = map[string]string{"go": "y"} },
		"report":   func(o *Options) { o.Report = "" },
	} {
		other := options
		change(&other)
		if _, err := New(other); err == nil {
			t.Errorf("a campaign with another %s goes on", name)
		}
	}
	if _, err := New(options); err != nil {
		t.Error(err)
	}
}

func TestTheRoundOfAFailureCanBeRunAlone(t *testing.T) {
	var all, alone []uint64
	sizes := Sizes{CI: 4}
	c, err := New(Options{Tier: CI, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	c.Rounds(t, "a scenario", sizes, fruitless(&all))
	if c, err = New(Options{Tier: CI, Seed: 3, Round: 3}); err != nil {
		t.Fatal(err)
	}
	c.Rounds(t, "a scenario", sizes, fruitless(&alone))
	if !slices.Equal(alone, all[2:3]) {
		t.Errorf("alone round 3 draws %d, among others %d", alone, all[2])
	}
}

func TestAFractionIsAtLeastARound(t *testing.T) {
	for fraction, want := range map[float64]int{0: 10, 0.31: 3, 0.01: 1, 1: 10} {
		c, err := New(Options{Tier: Nightly, Fraction: fraction})
		if err != nil {
			t.Fatal(err)
		}
		var seeds []uint64
		c.Rounds(t, "a scenario", Sizes{Nightly: 10}, fruitless(&seeds))
		if len(seeds) != want {
			t.Errorf("a fraction of %v is %d rounds, want %d", fraction, len(seeds), want)
		}
	}
}

// failing is how the round fails of a program that this one starts, and what its report is.
const failing = "LIMITER_CAMPAIGN_FAILING"

func TestAFailureStaysInTheReport(t *testing.T) {
	if how, report, ok := strings.Cut(os.Getenv(failing), " "); ok {
		c, err := New(Options{Tier: CI, Seed: 7, Report: report})
		if err != nil {
			t.Fatal(err)
		}
		c.Rounds(t, "a scenario", Sizes{CI: 3}, func(t *testing.T, r *Round) {
			switch r.Count(Operations, 5); {
			case r.Number == 1:
			case how == "Error":
				t.Error("and goes on")
			default:
				t.Fatal("in the middle")
			}
		})
	}
	for _, how := range []string{"Error", "Fatal"} {
		path := filepath.Join(t.TempDir(), "report.json")
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), failing+"="+how+" "+path)
		out, err := cmd.CombinedOutput()
		if want := "-seed=7 -round=2 "; err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, without %q:\n%s", how, err, want, out)
		}
		r, err := readReport(path)
		if err != nil {
			t.Fatal(err)
		}
		s := r.Scenarios[0]
		if s.Rounds != 1 || s.Counts[Operations] != 5 || len(s.Failed) != 1 || s.Failed[0].Round != 2 || s.Failed[0].Counts[Operations] != 5 {
			t.Errorf("%s: the report has %+v", how, s)
		}
		c, err := New(Options{Tier: CI, Report: path, Resume: true})
		if err != nil {
			t.Fatal(err)
		}
		c.Rounds(t, "a scenario", Sizes{CI: 3}, fruitless(new([]uint64)))
		if s := c.report.Scenarios[0]; s.Rounds != 3 || len(s.Failed) != 1 {
			t.Errorf("%s: after going on the report has %+v", how, s)
		}
	}
}

func TestARoundThatIsRunAloneLeavesTheReportAsItIs(t *testing.T) {
	options := Options{Tier: CI, Seed: 7, Report: filepath.Join(t.TempDir(), "report.json"), Round: 2}
	c, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	var seeds []uint64
	c.Rounds(t, "a scenario", Sizes{CI: 3}, fruitless(&seeds))
	if err := c.End(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(options.Report); !os.IsNotExist(err) || len(seeds) != 1 {
		t.Errorf("after %d rounds the report is there: %v", len(seeds), err)
	}
}

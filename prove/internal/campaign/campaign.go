// Package campaign runs scenarios in rounds, as many as a tier asks for, and writes what they
// counted to a report. The tests of prove call it.
//
// Each round has its own seed, made of the campaign's seed, the scenario's name and the round's
// number. So a round that failed can be run alone.
package campaign

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Tier is how much a campaign does.
type Tier string

// The tiers, with the time that they may take on two cores.
const (
	CI      Tier = "ci"      // 10 minutes
	Nightly Tier = "nightly" // 2 hours
	Release Tier = "release" // 6 hours
)

var tiers = []Tier{CI, Nightly, Release}

// Sizes is how many rounds a scenario has in each tier.
type Sizes struct{ CI, Nightly, Release int }

func (s Sizes) of(tier Tier) int {
	switch tier {
	case CI:
		return s.CI
	case Nightly:
		return s.Nightly
	}
	return s.Release
}

// Counts that several scenarios have. A scenario may also count other things, in words that a reader
// understands.
const (
	Operations   = "operations checked"
	Unknown      = "outcomes unknown"
	ClusterKills = "cluster kills"
	BackendKills = "backend kills"
	ProcessKills = "process kills"
	PoolerKills  = "pooler kills"
	Cuts         = "connections cut"
	Truncations  = "logs truncated"
	ClockSteps   = "clock steps"
	Failovers    = "failovers"
	Freezes      = "freezes"

	// These must be 0: [Round.None] fails otherwise.
	OverAdmitted  = "over-admitted"
	LostTakes     = "acknowledged takes lost"
	DoubleCharges = "double charges"

	// These are what a setting costs.
	LostAsyncCommit   = "acknowledged takes lost with WithAsyncCommit"
	LostAsyncFailover = "acknowledged takes lost by asynchronous failover"
)

// Options configure a campaign.
type Options struct {
	Tier Tier
	// Seed is the seed of all random choices. 0 chooses one.
	Seed uint64
	// Report is the file that the report is written to after each round. Empty means no file.
	Report string
	// Round, if it is above 0, is the only round to run.
	Round int
	// Fraction is the part of the tier's rounds to run, above 0 and at most 1. 0 runs all.
	Fraction float64
	// Versions are those of what is tested.
	Versions map[string]string
}

// Campaign is a run of scenarios. Its rounds come one after another.
type Campaign struct {
	Options
	report *report
}

// New returns a Campaign. It returns an error if the report of a longer tier would be overwritten.
func New(o Options) (*Campaign, error) {
	if !slices.Contains(tiers, o.Tier) {
		return nil, fmt.Errorf("there is no tier %q; there are %s", o.Tier, strings.Trim(fmt.Sprint(tiers), "[]"))
	}
	if o.Fraction < 0 || o.Fraction > 1 {
		return nil, fmt.Errorf("the fraction is %v; it must be above 0 and up to 1", o.Fraction)
	}
	c := &Campaign{Options: o}
	if _, err := os.Stat(o.Report); err == nil && o.Tier != CI && o.Round == 0 {
		return nil, fmt.Errorf("%s exists; name another file by -report, or remove it", o.Report)
	}
	if c.Seed == 0 {
		c.Seed = freshSeed()
	}
	c.report = newReport(c.Options)
	return c, nil
}

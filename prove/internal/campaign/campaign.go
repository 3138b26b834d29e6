// Package campaign runs scenarios in rounds, as many as a tier asks for, and keeps what
// they counted in a report.
//
// Each round has a seed of its own, made of the campaign's, the scenario's name and the
// round's number: so a round that failed can be run alone, and a campaign that was
// interrupted goes on where its report ends.
package campaign

import (
	"fmt"
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

// What scenarios count, where several count the same. A scenario may count other things,
// too, in words that a reader understands.
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

	// These must be 0, which [Round.None] sees to.
	OverAdmitted  = "over-admitted"
	LostTakes     = "acknowledged takes lost"
	DoubleCharges = "double charges"

	// These are what their setting costs.
	LostAsyncCommit   = "acknowledged takes lost with WithAsyncCommit"
	LostAsyncFailover = "acknowledged takes lost by asynchronous failover"
)

// Options is what a campaign is started with.
type Options struct {
	Tier Tier
	// Seed is what all randomness comes from; 0 is to choose one.
	Seed uint64
	// Report is the file that the report is written to after each round; empty is none.
	Report string
	// Resume is whether to go on where the report ends.
	Resume bool
	// Round, if it is above 0, is the number of the only round to be run.
	Round int
	// Fraction is the part of the tier's rounds that are run, above 0 to 1; 0 is all.
	Fraction float64
	// Versions tells what is tested.
	Versions map[string]string
}

// Campaign is a run of scenarios. Its rounds come one after another.
type Campaign struct {
	Options
	report *report
}

// New returns a Campaign. It reads the report if it is to be resumed.
func New(o Options) (*Campaign, error) {
	if !slices.Contains(tiers, o.Tier) {
		return nil, fmt.Errorf("there is no tier %q; there are %s", o.Tier, strings.Trim(fmt.Sprint(tiers), "[]"))
	}
	if o.Fraction < 0 || o.Fraction > 1 {
		return nil, fmt.Errorf("the fraction is %v; it must be above 0 and up to 1", o.Fraction)
	}
	c := &Campaign{Options: o}
	if o.Resume {
		if o.Report == "" {
			return nil, fmt.Errorf("to resume needs the report of before")
		}
		if err := c.resume(); err != nil {
			return nil, err
		}
		return c, nil
	}
	if err := c.spare(); err != nil {
		return nil, err
	}
	if c.Seed == 0 {
		c.Seed = freshSeed()
	}
	c.report = newReport(c.Options)
	return c, nil
}

// Package campaign runs scenarios in rounds, as many as a tier asks for, and writes what they counted to a report.
// A round's seed is made of the campaign's seed, the scenario's name and the round's number, so that it can run alone.
package campaign

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
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

// Counts that several scenarios have. A scenario may also count other things.
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
	Tier     Tier
	Seed     uint64            // of all random choices; 0 chooses one
	Report   string            // the file that the report is written to after each round, if it is not empty
	Round    int               // the only round to run, if it is above 0
	Fraction float64           // the part of the tier's rounds to run, above 0 and at most 1; 0 runs all
	Versions map[string]string // of what is tested
}

// Campaign is a run of scenarios. Its rounds come one after another.
type Campaign struct {
	Options
	report *Report
}

// New returns a Campaign. It returns an error if the report of a longer tier would be overwritten.
func New(o Options) (*Campaign, error) {
	if !slices.Contains(tiers, o.Tier) {
		return nil, fmt.Errorf("there is no tier %q; there are %s", o.Tier, strings.Trim(fmt.Sprint(tiers), "[]"))
	}
	c := &Campaign{Options: o}
	if _, err := os.Stat(o.Report); err == nil && o.Tier != CI && o.Round == 0 {
		return nil, fmt.Errorf("%s exists; name another file by -report, or remove it", o.Report)
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()>>12 | 1 // a JSON number holds it exactly
	}
	c.report = &Report{Tier: c.Tier, Seed: c.Seed, Fraction: c.Fraction, Began: time.Now().UTC().Truncate(time.Second), Versions: c.Versions, Scenarios: []*scenario{}}
	return c, nil
}

// Round is one round of a scenario, for one goroutine. Its counts become the scenario's when it has passed.
type Round struct {
	Number int // from 1
	Seed   uint64
	Rand   *rand.Rand // from the seed

	t      testing.TB
	counts map[string]int64
	most   map[string]int64
}

// Count adds n to a count of the scenario.
func (r *Round) Count(what string, n int64) { r.counts[what] += n }

// None counts something that must not happen: the test fails if n is not 0.
func (r *Round) None(what string, n int64) {
	r.t.Helper()
	r.Count(what, n)
	if n != 0 {
		r.t.Errorf("%s: %d, want none", what, n)
	}
}

// Most keeps the highest value of something, such as a latency.
func (r *Round) Most(what string, d time.Duration) {
	r.most[what] = max(r.most[what], d.Milliseconds())
}

// Rounds runs the rounds of a scenario in the campaign's tier as subtests, and stops at the first that fails.
func (c *Campaign) Rounds(t *testing.T, scenario string, sizes Sizes, round func(t *testing.T, r *Round)) {
	t.Helper()
	s := c.report.scenario(scenario, c.wanted(sizes))
	if c.Round > s.Wanted {
		t.Fatalf("%s has no round %d in tier %s, but %d", scenario, c.Round, c.Tier, s.Wanted)
	}
	number := max(1, c.Round)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s failed in round %d of %d; to run it alone: -tier=%s -seed=%d -round=%d -run='^%s$'",
				scenario, number, s.Wanted, c.Tier, c.Seed, number, t.Name())
		}
	})
	for ; number <= s.Wanted; number++ {
		seed := roundSeed(c.Seed, scenario, number)
		r := &Round{Number: number, Seed: seed, Rand: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int64{}, most: map[string]int64{}}
		began := time.Now()
		passed := t.Run(fmt.Sprint("round ", number), func(t *testing.T) { r.t = t; round(t, r) })
		if !passed || r.t == nil || t.Failed() { // without a t, -run has left it out
			t.FailNow()
		}
		if c.Round > 0 {
			return
		}
		s.add(r, time.Since(began))
		if err := c.report.write(c.Report); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s: %d rounds, %v", scenario, s.Rounds, s.Counts)
}

func (c *Campaign) wanted(sizes Sizes) int {
	n := map[Tier]int{CI: sizes.CI, Nightly: sizes.Nightly, Release: sizes.Release}[c.Tier]
	if c.Fraction > 0 {
		n = max(1, int(c.Fraction*float64(n)))
	}
	return n
}

func roundSeed(seed uint64, scenario string, number int) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, seed, " ", number, " ", scenario) // a hash takes all
	return h.Sum64()
}

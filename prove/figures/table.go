package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sqlimit/limiter/prove/internal/campaign"
)

// twice is what the histories count of calls that both checkers have judged.
const twice = "operations checked by porcupine, too"

// rows are the lines of the table: what they are called, and what stands in them.
var rows = []struct {
	name     string
	postgres []string
	sqlite   []string
}{
	{"operations checked; of them twice, by the row's own order and by porcupine", []string{campaign.Operations, twice}, []string{campaign.Operations, twice}},
	{"kills: of the cluster, a backend, PgBouncer; of a process", []string{campaign.ClusterKills, campaign.BackendKills, campaign.PoolerKills}, []string{campaign.ProcessKills}},
	{"connections cut (larger tiers: at every byte); logs cut, at and within every frame", []string{campaign.Cuts}, []string{campaign.Truncations}},
	{"clock steps of ±1 ms to ±10 years, failovers, frozen clients", []string{campaign.ClockSteps, campaign.Failovers, campaign.Freezes}, nil},
	{"**over-admitted, acknowledged takes lost, double charges**", bad, bad},
}

// bad is what must not be.
var bad = []string{campaign.OverAdmitted, campaign.LostTakes, campaign.DoubleCharges}

// tableOf returns the table of all reports together.
func tableOf(reports []report) (string, error) {
	postgres, sqlite := map[string]int64{}, map[string]int64{}
	for _, r := range reports {
		if r.Fraction != 0 || strings.HasSuffix(r.Versions["limiter"], "-dirty") {
			return "", fmt.Errorf("a report is of a part of its tier, or of code that was not committed")
		}
		for _, s := range r.Scenarios {
			switch {
			case s.Rounds < s.Wanted:
				return "", fmt.Errorf("%q has %d of %d rounds; resume it", s.Name, s.Rounds, s.Wanted)
			case len(s.Failed) > 0:
				return "", fmt.Errorf("%q failed in round %d; fix that, and begin again", s.Name, s.Failed[0].Round)
			}
			into := postgres
			if strings.Contains(s.Name, "SQLite") {
				into = sqlite
			}
			for what, n := range s.Counts {
				into[what] += n
			}
		}
	}
	var b strings.Builder
	b.WriteString("| | PostgreSQL | SQLite |\n|---|---:|---:|\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.name, cell(postgres, row.postgres), cell(sqlite, row.sqlite))
	}
	fmt.Fprintf(&b, "\nRun: %s; %s, SQLite by modernc.org/sqlite %s.\n",
		strings.Join(distinct(reports, sourceOf), "; "),
		strings.Join(distinct(reports, func(r report) string { return server(r.Versions["postgres"]) }), ", "),
		strings.Join(distinct(reports, func(r report) string { return r.Versions["modernc.org/sqlite"] }), ", "))
	if n := postgres[campaign.LostAsyncCommit]; n > 0 {
		fmt.Fprintf(&b, "What is asked for costs what it costs: `WithAsyncCommit` lost %s takes in %s kills", grouped(n), grouped(kills(reports, "WithAsyncCommit", campaign.ClusterKills)))
		fmt.Fprintf(&b, ",\nand failover to an asynchronous standby that lagged behind %s in %s.\n", grouped(postgres[campaign.LostAsyncFailover]), grouped(kills(reports, "asynchronous standby", campaign.Failovers)))
	}
	return b.String(), nil
}

// sourceOf tells what was run: a tier, or those of its scenarios that the report has, if they
// are few.
func sourceOf(r report) string {
	var seconds float64
	var names []string
	for _, s := range r.Scenarios {
		seconds += s.Seconds
		names = append(names, s.Name)
	}
	what := "tier " + r.Tier
	if len(names) < 5 {
		what += " of " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s at %s, %.0f minutes, seed %d", what, r.Versions["limiter"], seconds/60, r.Seed)
}

// server returns the name and the version in what postgres --version says.
func server(version string) string {
	fields := strings.Fields(strings.NewReplacer("(", "", ")", "").Replace(version))
	if len(fields) < 3 {
		return version
	}
	return fields[1] + " " + fields[2]
}

// kills returns what the scenarios with a word in their name have counted of something.
func kills(reports []report, word, what string) (n int64) {
	for _, r := range reports {
		for _, s := range r.Scenarios {
			if strings.Contains(s.Name, word) {
				n += s.Counts[what]
			}
		}
	}
	return n
}

// cell returns counts as they stand in the table.
func cell(counts map[string]int64, of []string) string {
	numbers := make([]string, len(of))
	for i, what := range of {
		numbers[i] = grouped(counts[what])
	}
	return strings.Join(numbers, "; ")
}

func distinct(reports []report, of func(report) string) (all []string) {
	for _, r := range reports {
		if s := of(r); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// grouped writes a number with commas.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

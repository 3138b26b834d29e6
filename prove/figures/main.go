// Command figures writes the figures of campaign reports into the documentation: a short table
// into README.md, and the full one with the list of runs into docs/faults.md. Each file marks
// the place with two comments.
//
//	go run ./prove/figures prove/results/*.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/sqlimit/limiter/prove/internal/campaign"
)

const (
	readme = "README.md"
	faults = "docs/faults.md"
	begin  = "<!-- figures: go run ./prove/figures prove/results/*.json -->\n"
	end    = "<!-- end of figures -->\n"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "figures: no report; name one")
		os.Exit(2)
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(paths []string) error {
	reports, err := read(paths)
	if err != nil {
		return err
	}
	blocks, err := blocksOf(reports)
	if err != nil {
		return err
	}
	for file, block := range blocks {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		changed, err := replace(file, string(text), block)
		if err == nil {
			err = os.WriteFile(file, []byte(changed), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func read(paths []string) ([]campaign.Report, error) {
	reports := make([]campaign.Report, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &reports[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return reports, nil
}

// replace returns the text of a file with block between the two marks.
func replace(file, text, block string) (string, error) {
	before, rest, found := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("%s has no lines %q and %q", file, begin, end)
	}
	return before + begin + block + end + after, nil
}

// english writes 1,000 for 1000.
var english = message.NewPrinter(language.English)

// row is a line of the tables. A column without a count stays empty.
type row struct {
	name             string
	postgres, sqlite string // what the reports call the count
	short            bool   // README.md has the row, too
}

var rows = []row{
	{"operations checked", campaign.Operations, campaign.Operations, true},
	{"kills of the server", campaign.ClusterKills, "", true},
	{"terminated or killed backends", campaign.BackendKills, "", false},
	{"kills of PgBouncer", campaign.PoolerKills, "", false},
	{"kills of a process that uses the file", "", campaign.ProcessKills, true},
	{"connections cut", campaign.Cuts, "", true},
	{"write-ahead logs cut, between and inside frames", "", campaign.Truncations, false},
	{"clock steps of ±1 ms to ±10 years", campaign.ClockSteps, "", true},
	{"failovers", campaign.Failovers, "", false},
	{"frozen clients", campaign.Freezes, "", false},
	{"**over-admitted**", campaign.OverAdmitted, campaign.OverAdmitted, true},
	{"**acknowledged takes lost**", campaign.LostTakes, campaign.LostTakes, true},
	{"**double charges**", campaign.DoubleCharges, campaign.DoubleCharges, true},
}

func blocksOf(reports []campaign.Report) (map[string]string, error) {
	postgres, sqlite := map[string]int64{}, map[string]int64{}
	for _, r := range reports {
		if r.Fraction != 0 || strings.HasSuffix(r.Versions["limiter"], "-dirty") {
			return nil, fmt.Errorf("a report is of a part of its tier, or of code that was not committed")
		}
		for _, s := range r.Scenarios {
			if s.Rounds < s.Wanted {
				return nil, fmt.Errorf("%q has passed %d of %d rounds", s.Name, s.Rounds, s.Wanted)
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
	all, short := table(rows, postgres, sqlite), slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !r.short })
	return map[string]string{readme: table(short, postgres, sqlite), faults: all + lost(reports, postgres) + runs(reports)}, nil
}

func table(rows []row, postgres, sqlite map[string]int64) string {
	text := "| | PostgreSQL | SQLite |\n|---|---:|---:|\n"
	cell := func(counts map[string]int64, what string) string {
		if what == "" {
			return ""
		}
		return english.Sprint(counts[what])
	}
	for _, r := range rows {
		text += fmt.Sprintf("| %s | %s | %s |\n", r.name, cell(postgres, r.postgres), cell(sqlite, r.sqlite))
	}
	return text
}

// lost tells what options that trade durability for speed have cost.
func lost(reports []campaign.Report, postgres map[string]int64) string {
	if postgres[campaign.LostAsyncCommit] == 0 {
		return ""
	}
	return english.Sprintf(`
Not in the table: `+"`WithAsyncCommit`"+` lost %d takes (kills of the server: %d). A failover to an asynchronous
standby that lagged behind lost %d takes (failovers: %d).
`,
		postgres[campaign.LostAsyncCommit], kills(reports, "WithAsyncCommit", campaign.ClusterKills),
		postgres[campaign.LostAsyncFailover], kills(reports, "asynchronous standby", campaign.Failovers))
}

func runs(reports []campaign.Report) string {
	text := "\n| tier | scenarios | commit | minutes |\n|---|---|---|---:|\n"
	var servers, drivers []string
	for _, r := range reports {
		var seconds float64
		var names []string
		for _, s := range r.Scenarios {
			seconds += s.Seconds
			names = append(names, s.Name)
		}
		if len(names) > 3 {
			names = []string{fmt.Sprintf("%d scenarios", len(names))}
		}
		text += fmt.Sprintf("| %s | %s | %s | %.0f |\n", r.Tier, strings.Join(names, "; "), r.Versions["limiter"], seconds/60)
		servers, drivers = add(servers, server(r.Versions["postgres"])), add(drivers, r.Versions["modernc.org/sqlite"])
	}
	return text + fmt.Sprintf("\nVersions: %s; modernc.org/sqlite %s.\n", strings.Join(servers, ", "), strings.Join(drivers, ", "))
}

// add appends s to a list that does not have it.
func add(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// server returns the name and the version in what postgres --version says.
func server(version string) string {
	fields := strings.Fields(strings.NewReplacer("(", "", ")", "").Replace(version))
	if len(fields) < 3 {
		return version
	}
	return fields[1] + " " + fields[2]
}

// kills sums up a count over the scenarios whose name contains word.
func kills(reports []campaign.Report, word, what string) (n int64) {
	for _, r := range reports {
		for _, s := range r.Scenarios {
			if strings.Contains(s.Name, word) {
				n += s.Counts[what]
			}
		}
	}
	return n
}

// Command figures puts the figures of reports of campaigns into the project's README, between
// the lines that say so:
//
//	go run ./prove/figures [-o] prove/results/*.json
//
// With -o it prints the table and changes nothing.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
)

const (
	readme = "README.md"
	begin  = "<!-- figures: go run ./prove/figures prove/results/*.json -->\n"
	end    = "<!-- end of figures -->\n"
)

func main() {
	only := flag.Bool("o", false, "print the table, and change nothing")
	flag.Parse()
	if err := run(flag.Args(), *only); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(paths []string, only bool) error {
	reports, err := read(paths)
	if err != nil {
		return err
	}
	table, err := tableOf(reports)
	if err != nil {
		return err
	}
	if only {
		fmt.Print(table)
		return nil
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	changed, err := replace(string(text), table)
	if err != nil {
		return err
	}
	return os.WriteFile(readme, []byte(changed), 0o644)
}

// report is what is needed of a campaign's.
type report struct {
	Tier      string            `json:"tier"`
	Seed      uint64            `json:"seed"`
	Fraction  float64           `json:"fraction"`
	Versions  map[string]string `json:"versions"`
	Scenarios []struct {
		Name    string           `json:"name"`
		Rounds  int              `json:"rounds"`
		Wanted  int              `json:"wanted"`
		Seconds float64          `json:"seconds"`
		Counts  map[string]int64 `json:"counts"`
		Failed  []struct {
			Round int `json:"round"`
		} `json:"failed"`
	} `json:"scenarios"`
}

func read(paths []string) ([]report, error) {
	if len(paths) == 0 {
		return nil, fmt.Errorf("no report; name one")
	}
	reports := make([]report, len(paths))
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

// replace returns text with a table in place of the one between the marks.
func replace(text, table string) (string, error) {
	before, rest, found := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("%s has no lines %q and %q", readme, begin, end)
	}
	return before + begin + table + end + after, nil
}

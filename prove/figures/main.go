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
	"strings"
)

const (
	readme = "README.md"
	faults = "docs/faults.md"
	begin  = "<!-- figures: go run ./prove/figures prove/results/*.json -->\n"
	end    = "<!-- end of figures -->\n"
)

func main() {
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
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// report is the part of a campaign's report that the figures come from.
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

// replace returns the text of a file with block between the two marks.
func replace(file, text, block string) (string, error) {
	before, rest, found := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("%s has no lines %q and %q", file, begin, end)
	}
	return before + begin + block + end + after, nil
}

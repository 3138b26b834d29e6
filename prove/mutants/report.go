package main

import (
	"encoding/json"
	"os"
	"runtime"
	"time"
)

// record is how a result stands in the report.
type record struct {
	Name    string   `json:"name"`
	Bug     string   `json:"bug"`
	Found   []string `json:"found,omitempty"`
	Checks  []string `json:"checks"`
	Outcome Outcome  `json:"outcome"`
	Seconds float64  `json:"seconds"`
	Said    string   `json:"said,omitempty"` // if it was not killed
}

// writeReport writes the results to a file.
func writeReport(file string, results []Result, took time.Duration) error {
	report := struct {
		Go      string   `json:"go"`
		System  string   `json:"system"`
		Seconds float64  `json:"seconds"`
		Killed  int      `json:"killed"`
		Mutants []record `json:"mutants"`
	}{Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, Seconds: took.Seconds()}
	for _, r := range results {
		m := r.Mutant
		entry := record{m.Name, m.Bug, m.Found, nil, r.Outcome, r.Took.Seconds(), r.Said}
		for _, check := range m.checks() {
			entry.Checks = append(entry.Checks, check.command())
		}
		if r.Outcome == Killed {
			entry.Said = ""
			report.Killed++
		}
		report.Mutants = append(report.Mutants, entry)
	}
	text, err := json.MarshalIndent(report, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

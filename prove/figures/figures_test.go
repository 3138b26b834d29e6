package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheReadmeTellsWhatTheReportsSay(t *testing.T) {
	t.Chdir("../..")
	paths, err := filepath.Glob("prove/results/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no reports: %v", err)
	}
	before, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	reports, err := read(paths)
	if err != nil {
		t.Fatal(err)
	}
	table, err := tableOf(reports)
	if err != nil {
		t.Fatal(err)
	}
	after, err := replace(string(before), table)
	if err != nil {
		t.Fatal(err)
	}
	if after != string(before) {
		t.Errorf("README.md does not tell what the reports say; renew it: go run ./prove/figures prove/results/*.json\nwant\n%s", table)
	}
}

func TestAReportThatDoesNotShowWhatItSeemsToIsNotPublished(t *testing.T) {
	for text, want := range map[string]string{
		`{"scenarios": [{"name": "kills", "rounds": 3, "wanted": 4}]}`:                           "3 of 4 rounds",
		`{"scenarios": [{"name": "kills", "rounds": 4, "wanted": 4, "failed": [{"round": 2}]}]}`: "failed in round 2",
		`{"fraction": 0.5, "scenarios": []}`:                                                     "a part of its tier",
		`{"versions": {"limiter": "abcdef0-dirty"}, "scenarios": [{"name": "a", "wanted": 0}]}`:  "not committed",
	} {
		path := filepath.Join(t.TempDir(), "report.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run([]string{path}, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: run = %v", text, err)
		}
	}
}

func TestNumbersAreGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 10408123: "10,408,123"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}

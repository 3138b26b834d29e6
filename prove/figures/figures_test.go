package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/internal/testenv"
)

func TestTheDocumentsTellWhatTheReportsSay(t *testing.T) {
	t.Chdir("../..")
	paths, err := filepath.Glob("prove/results/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no reports: %v", err)
	}
	reports, err := read(paths)
	testenv.Must(t, err)
	blocks, err := blocksOf(reports)
	testenv.Must(t, err)
	for file, block := range blocks {
		before, err := os.ReadFile(file)
		testenv.Must(t, err)
		after, err := replace(file, string(before), block)
		testenv.Must(t, err)
		if after != string(before) {
			t.Errorf("%s differs from the reports; renew it: go run ./prove/figures prove/results/*.json\nwant\n%s", file, block)
		}
	}
}

func TestReadmeRoundsDown(t *testing.T) {
	text, err := os.ReadFile("../../" + readme)
	testenv.Must(t, err)
	claim := regexp.MustCompile(`More than (\d+) million\s+operations`).FindSubmatch(text)
	row := regexp.MustCompile(`(?m)^\| operations checked \| ([\d,]+) \| ([\d,]+) \|$`).FindSubmatch(text)
	if claim == nil || row == nil {
		t.Fatalf("%s has the claim %q and the row %q, want both", readme, claim, row)
	}
	number := func(digits []byte) int {
		n, err := strconv.Atoi(strings.ReplaceAll(string(digits), ",", ""))
		testenv.Must(t, err)
		return n
	}
	if sum := number(row[1]) + number(row[2]); sum/1_000_000 != number(claim[1]) {
		t.Errorf("%s says more than %s million operations, and its table %d", readme, claim[1], sum)
	}
}

func TestUnfitReports(t *testing.T) {
	for text, want := range map[string]string{
		`{"scenarios": [{"name": "kills", "rounds": 3, "wanted": 4}]}`:                          "3 of 4 rounds",
		`{"fraction": 0.5, "scenarios": []}`:                                                    "a part of its tier",
		`{"versions": {"limiter": "abcdef0-dirty"}, "scenarios": [{"name": "a", "wanted": 0}]}`: "not committed",
	} {
		path := filepath.Join(t.TempDir(), "report.json")
		testenv.Must(t, os.WriteFile(path, []byte(text), 0o600))
		if err := run([]string{path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: run = %v", text, err)
		}
	}
}

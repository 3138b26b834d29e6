package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

func TestEveryMutantCanBePlanted(t *testing.T) {
	t.Parallel()
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range catalog() {
		if _, err := plant(absolute, t.TempDir(), m.Edits); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

func TestEveryMutantSaysWhatItIsAndWhatFindsIt(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`^[a-zA-Z0-9-]+$`)
	// Whole names: a check that runs more by chance may fail for another reason.
	top := regexp.MustCompile(`^\^((?:Test|Fuzz)\w+)\$(/\^[^/]+)*$`)
	names := map[string]bool{}
	for _, m := range catalog() {
		if names[m.Name] || !named.MatchString(m.Name) {
			t.Errorf("the name %q is there twice, or has other characters than letters, digits and -", m.Name)
		}
		names[m.Name] = true
		if m.Bug == "" || strings.HasSuffix(m.Bug, ".") || strings.ContainsAny(m.Bug, "|\n") {
			t.Errorf("%s: %q is no sentence for a table", m.Name, m.Bug)
		}
		for _, address := range m.Found {
			if _, err := nameOf(address); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
		for _, check := range m.checks() {
			if check.Says == "" {
				t.Errorf("%s: it is not told what %s says, so that any failure would do", m.Name, check.Run)
			}
			found := top.FindStringSubmatch(check.Run)
			if found == nil {
				t.Errorf("%s: %q is not the whole name of one test", m.Name, check.Run)
				continue
			}
			if err := declares(check.Package, found[1]); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
}

// declares returns an error unless a package has a test.
func declares(pkg, test string) error {
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Contains(string(text), "\nfunc "+test+"(") {
			return nil
		}
	}
	return fmt.Errorf("%s has no %s", pkg, test)
}

func TestTheReadmeHasTheTableOfAllMutants(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := withTable(string(text), catalog())
	if err != nil {
		t.Fatal(err)
	}
	if want != string(text) {
		t.Error("the table in README.md is not that of the mutants; go run ./prove/mutants -update")
	}
}

func TestNamesOfBugsAreThoseOfTheirAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://github.com/svix/diom/pull/115":               "svix/diom#115",
		"https://github.com/istio/istio/issues/12115":         "istio/istio#12115",
		"https://nvd.nist.gov/vuln/detail/CVE-2026-30827":     "CVE-2026-30827",
		"https://github.com/svix/diom":                        "",
		"https://github.com/svix/diom/pull/115#issuecomment":  "",
		"http://github.com/svix/diom/pull/115":                "",
		"https://example.com/github.com/svix/diom/issues/115": "",
	} {
		got, err := nameOf(address)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s is called %q, %v; want %q", address, got, err, want)
		}
	}
}

func TestATableHasItsPlace(t *testing.T) {
	t.Parallel()
	mutants := []Mutant{{
		Name: "a", Bug: "b", Found: []string{"https://github.com/o/r/pull/1", "https://github.com/o/r/issues/2"},
		Check: Check{Package: "./c", Run: "^TestD$|^TestE$"}, Also: []Check{{Package: "./f", Run: "^TestG$"}},
	}}
	const want = "| mutant | the bug | who had it | killed by |\n|---|---|---|---|\n" +
		"| `a` | b | [o/r#1](https://github.com/o/r/pull/1), [o/r#2](https://github.com/o/r/issues/2) | `./c ^TestD$\\|^TestE$`; `./f ^TestG$` |\n"
	got, err := withTable("head\n"+tableBegins+"old\n"+tableEnds+"tail\n", mutants)
	if err != nil || got != "head\n"+tableBegins+want+tableEnds+"tail\n" {
		t.Errorf("%v\n%s", err, got)
	}
	for _, text := range []string{"", tableBegins, tableEnds + tableBegins} {
		if _, err := withTable(text, mutants); err == nil {
			t.Errorf("%q has a place for a table", text)
		}
	}
	mutants[0].Found[0] = "https://example.com"
	if _, err := withTable(tableBegins+tableEnds, mutants); err == nil {
		t.Error("an address of nowhere is let pass")
	}
}

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

func TestTierCIHasAMutantOrTwoOfEachGroup(t *testing.T) {
	t.Parallel()
	for _, group := range groups() {
		n := 0
		for _, m := range group {
			if m.CI {
				n++
			}
		}
		if n < 1 || n > 2 {
			t.Errorf("the group of %s has %d mutants with CI, want 1 or 2", group[0].Name, n)
		}
	}
}

func TestSelectedMutantsAreOfTheTierAndMatchTheName(t *testing.T) {
	t.Parallel()
	mutants := []Mutant{{Name: "one", CI: true}, {Name: "two"}, {Name: "three", CI: true}}
	for _, c := range []struct{ tier, names, want string }{
		{"all", "", "one two three"},
		{"ci", "", "one three"},
		{"ci", "^t", "three"},
		{"all", "^t", "two three"},
	} {
		selected, err := selection(mutants, c.tier, c.names)
		var names []string
		for _, m := range selected {
			names = append(names, m.Name)
		}
		if got := strings.Join(names, " "); got != c.want || err != nil {
			t.Errorf("tier %s, name %q: selected %q, %v; want %q", c.tier, c.names, got, err, c.want)
		}
	}
	for _, c := range []struct{ tier, names, says string }{
		{"ci", "^two$", `no mutant in tier ci matches "^two$"`},
		{"nightly", "", `-tier is "nightly"; it must be ci or all`},
		{"all", "(", "-run: error parsing regexp"},
	} {
		if got, err := selection(mutants, c.tier, c.names); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("tier %s, name %q: selected %v, %v; want an error that says %s", c.tier, c.names, got, err, c.says)
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
		Name: "a", CI: true, Bug: "b", Found: []string{"https://github.com/o/r/pull/1", "https://github.com/o/r/issues/2"},
		Check: Check{Package: "./c", Run: "^TestD$|^TestE$"}, Also: []Check{{Package: "./f", Run: "^TestG$"}},
	}}
	const want = "| mutant | the bug | who had it | killed by |\n|---|---|---|---|\n" +
		"| `a` (ci) | b | [o/r#1](https://github.com/o/r/pull/1), [o/r#2](https://github.com/o/r/issues/2) | `./c ^TestD$\\|^TestE$`; `./f ^TestG$` |\n"
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

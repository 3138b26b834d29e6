package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// groups returns the mutants of the catalog.
func groups(t *testing.T) [][]Mutant {
	t.Helper()
	groups, err := parse(catalogText)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(slices.Concat(groups...)); n < 140 {
		t.Fatalf("the catalog has %d mutants, want at least 140", n)
	}
	return groups
}

func TestEveryMutantCanBePlanted(t *testing.T) {
	t.Parallel()
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range slices.Concat(groups(t)...) {
		if _, err := plant(absolute, t.TempDir(), m.Edits); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

func TestTierCIHasAMutantOrTwoOfEachGroup(t *testing.T) {
	t.Parallel()
	for _, group := range groups(t) {
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

func TestSelectedMutants(t *testing.T) {
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

func TestMutantsAreComplete(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`^[a-zA-Z0-9-]+$`)
	// Whole names: a check that runs more by chance may fail for another reason.
	top := regexp.MustCompile(`^\^((?:Test|Fuzz)\w+)\$(/\^[^/]+)*$`)
	names := map[string]bool{}
	for _, m := range slices.Concat(groups(t)...) {
		if names[m.Name] || !named.MatchString(m.Name) {
			t.Errorf("the name %q is there twice, or has other characters than letters, digits and -", m.Name)
		}
		names[m.Name] = true
		if m.Bug == "" || len(m.Edits) == 0 || len(m.Checks) == 0 {
			t.Errorf("%s lacks a bug, an edit or a check", m.Name)
		}
		for _, check := range m.Checks {
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

func TestALineOutOfPlaceIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"== name", "# group\nbug: none", "# group\n== name\n-text", "# group\n== name\nsays: x", "# group\n== name\ncheck: x", "# group\n== name\nword"} {
		if groups, err := parse(text); err == nil {
			t.Errorf("%q is read as %+v", text, groups)
		}
	}
}

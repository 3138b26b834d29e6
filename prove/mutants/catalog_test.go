package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/internal/testenv"
)

func TestCatalog(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	testenv.Must(t, err)
	bugs := parse(catalogText)
	if len(bugs) < 40 || len(bugs) > 60 {
		t.Fatalf("the catalog has %d bugs; want 40 to 60", len(bugs))
	}
	// Whole names: a check that runs more by chance may fail for another reason.
	test := regexp.MustCompile(`^\^((?:Test|Fuzz)\w+)\$(/\^[^/]+)*$`)
	names := map[string]bool{}
	for _, b := range bugs {
		if names[b.name] || !regexp.MustCompile(`^[a-zA-Z0-9-]+$`).MatchString(b.name) {
			t.Errorf("the name %q is there twice, or has other characters than letters, digits and -", b.name)
		}
		names[b.name] = true
		testenv.Equal(t, b.what != "" && len(b.edits) > 0 && len(b.checks) > 0, true, b.name, "has a bug, an edit and a check")
		testenv.Equal(t, testenv.ErrorOf(b.plant(root, t.TempDir())), nil, b.name)
		for _, c := range b.checks {
			found := test.FindStringSubmatch(c.run)
			if found == nil || c.says == "" {
				t.Errorf("%s: %q is not the whole name of a test, or %q not what it says", b.name, c.run, c.says)
			} else if !declares(filepath.Join(root, c.pkg), found[1]) {
				t.Errorf("%s: %s has no %s", b.name, c.pkg, found[1])
			}
		}
	}
}

// declares reports whether the package in dir has a test.
func declares(dir, test string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go")) // the pattern is right
	return slices.ContainsFunc(files, func(file string) bool {
		text, _ := os.ReadFile(file) // it is there
		return strings.Contains(string(text), "\nfunc "+test+"(")
	})
}

// module is a small one with tests of all sorts.
var module = map[string]string{
	"go.mod": "module example.com/small\n\ngo 1.26.0\n",
	"small.go": `package small

func sum(a, b int) int { return a + b }
`,
	"small_test.go": `package small

import "testing"

func TestSum(t *testing.T) {
	if got := sum(2, 3); got != 5 {
		t.Errorf("sum is %d, want 5", got)
	}
}

func TestUnused(t *testing.T) { t.Log(sum(1, 2)) }

func TestBroken(t *testing.T) { t.Error("as ever") }

func TestSkipped(t *testing.T) { t.Skip("no luck") }
`,
}

func TestFind(t *testing.T) {
	t.Parallel()
	root, dir := t.TempDir(), t.TempDir()
	for name, text := range module {
		testenv.Must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	sum := check{".", "^TestSum$", "sum is"}
	minus := []edit{{"small.go", "a + b", "a - b"}}
	for _, c := range []struct {
		name   string
		edits  []edit
		checks []check
		says   string // "" if the bug is found
	}{
		{"found", minus, []check{sum}, ""},
		{"two edits of a file", []edit{{"small.go", "a + b", "b + b"}, {"small.go", "b + b }\n", "b + b + b }\n"}}, []check{{".", "^TestSum$", "sum is 9"}}, ""},
		{"not by the second check", minus, []check{sum, {".", "^TestUnused$", "1"}}, "failed false"},
		{"another message", minus, []check{{".", "^TestSum$", "sum is 7"}}, `it should fail and say "sum is 7"`},
		{"no Go", []edit{{"small.go", "a + b", "a +"}}, []check{sum}, "does not compile"},
		{"text that is not there", []edit{{"small.go", "a % b", "a"}}, []check{sum}, "has this 0 times"},
		{"text that is there twice", []edit{{"small.go", "int", "int64"}}, []check{sum}, "has this 2 times"},
		{"no change", []edit{{"small.go", "a + b", "a + b"}}, []check{sum}, "must differ"},
		{"a check that never passes", minus, []check{{".", "^TestBroken$", "as ever"}}, "fails on the code as it is"},
		{"a check without a test", minus, []check{{".", "^TestNone$", "sum is"}}, "runs no test"},
		{"a check that is skipped", minus, []check{{".", "^TestSkipped$", "sum is"}}, "skips one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := bug{name: c.name, edits: c.edits, checks: c.checks}
			err := tests{root, dir, []string{"GOWORK=off", "GOFLAGS=-buildvcs=false"}}.find(t.Context(), b)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("find = %v; want %q", err, c.says)
			}
		})
	}
}

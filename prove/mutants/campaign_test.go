package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module is a small one with tests of all kinds.
var module = map[string]string{
	"go.mod": "module example.com/small\n\ngo 1.26.0\n",
	"small.go": `package small

import _ "embed"

//go:embed greeting.txt
var greeting string

func sum(a, b int) int { return a + b }

func spare(a, b int) int { return a * b }

func twice() (int, int) { return 1, 1 }

func endless() bool { return false }
`,
	"greeting.txt": "hello\n",
	"small_test.go": `package small

import "testing"

func TestSum(t *testing.T) {
	if got := sum(2, 3); got != 5 {
		t.Errorf("sum is %d, want 5", got)
	}
}

func TestGreeting(t *testing.T) {
	if greeting != "hello\n" {
		t.Errorf("greeting is %q", greeting)
	}
}

func TestTwice(t *testing.T) { t.Log(twice()) }

func TestSpare(t *testing.T) { t.Log(spare(1, 2)) }

func TestEndless(t *testing.T) {
	for endless() {
	}
}

func TestBroken(t *testing.T) { t.Error("as ever") }

func TestSkipped(t *testing.T) { t.Skip("no luck") }
`,
}

func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSurvivorsAreReported(t *testing.T) {
	t.Parallel()
	check := func(test, says string) Check { return Check{".", "^" + test + "$", says} }
	minus := Edit{"small.go", "a + b", "a - b"}
	cases := []struct {
		mutant Mutant
		want   Outcome
		says   string
	}{
		{Mutant{Name: "killed", Edits: []Edit{minus}, Checks: []Check{check("TestSum", "sum is -1, want 5")}}, Killed, "--- FAIL: TestSum"},
		{Mutant{Name: "in an embedded file", Edits: []Edit{{"greeting.txt", "hello", "bye"}}, Checks: []Check{check("TestGreeting", `"bye\n"`)}}, Killed, "greeting is"},
		{
			Mutant{
				Name:  "two edits of a file",
				Edits: []Edit{{"small.go", "a + b", "b + b"}, {"small.go", "b + b }\n", "b + b + b }\n"}}, Checks: []Check{check("TestSum", "sum is 9")},
			}, Killed, "sum is 9",
		},
		{Mutant{Name: "survivor", Edits: []Edit{{"small.go", "a * b", "a / b"}}, Checks: []Check{check("TestSpare", "spare")}}, Survived, "--- PASS: TestSpare"},
		{Mutant{Name: "killed twice", Edits: []Edit{minus}, Checks: []Check{check("TestSum", "sum is"), check("TestSum", "want 5")}}, Killed, "want 5"},
		{Mutant{Name: "unseen by the second", Edits: []Edit{minus}, Checks: []Check{check("TestSum", "sum is"), check("TestSpare", "1")}}, Survived, "TestSpare"},
		{Mutant{Name: "without a second", Edits: []Edit{minus}, Checks: []Check{check("TestSum", "sum is"), check("TestBroken", "as")}}, NoCheck, "TestBroken"},
		{Mutant{Name: "another reason", Edits: []Edit{minus}, Checks: []Check{check("TestSum", "sum is 7")}}, WrongReason, `it does not say "sum is 7", but`},
		{Mutant{Name: "no Go", Edits: []Edit{{"small.go", "a + b", "a +"}}, Checks: []Check{check("TestSum", "sum is")}}, NoBuild, "syntax error"},
		{Mutant{Name: "not there", Edits: []Edit{{"small.go", "a % b", "a"}}, Checks: []Check{check("TestSum", "sum is")}}, NotPlanted, "0 times"},
		{Mutant{Name: "there twice", Edits: []Edit{{"small.go", "1", "2"}}, Checks: []Check{check("TestTwice", "2")}}, NotPlanted, "2 times"},
		{Mutant{Name: "no change", Edits: []Edit{{"small.go", "a + b", "a + b"}}, Checks: []Check{check("TestSum", "sum is")}}, NotPlanted, "nothing is changed"},
		{Mutant{Name: "no file", Edits: []Edit{{"none.go", "a", "b"}}, Checks: []Check{check("TestSum", "sum is")}}, NotPlanted, "none.go"},
		{Mutant{Name: "a check that never passes", Edits: []Edit{minus}, Checks: []Check{check("TestBroken", "as ever")}}, NoCheck, "on the code as it is"},
		{Mutant{Name: "a check of no test", Edits: []Edit{minus}, Checks: []Check{check("TestNone", "sum is")}}, NoCheck, "runs no test"},
		{Mutant{Name: "a check that is skipped", Edits: []Edit{minus}, Checks: []Check{check("TestSkipped|TestSum", "sum is")}}, NoCheck, "skips a test"},
		{Mutant{Name: "no package", Edits: []Edit{minus}, Checks: []Check{{"./none", "^TestSum$", "sum is"}}}, NoCheck, "none"},
		{Mutant{Name: "endless", Edits: []Edit{{"small.go", "return false", "return true"}}, Checks: []Check{check("TestEndless", "it ended")}}, WrongReason, "test timed out"},
	}
	dir := write(t, module)
	var mutants []Mutant
	for _, c := range cases {
		mutants = append(mutants, c.mutant)
	}
	reported := 0
	c := campaign{
		tests: tests{root: dir, env: []string{"GOWORK=off", "GOFLAGS=-buildvcs=false"}, limit: 2 * time.Second},
		dir:   t.TempDir(), parallel: 4, times: 1, report: func(Result) { reported++ },
	}
	results := c.run(t.Context(), mutants)
	for i, want := range cases {
		r := results[i]
		if r.Mutant.Name != want.mutant.Name || r.Outcome != want.want || !strings.Contains(r.Said, want.says) {
			t.Errorf("%s: %s, want %s and %q:\n%s", want.mutant.Name, r.Outcome, want.want, want.says, r.Said)
		}
	}
	if reported != len(cases) {
		t.Errorf("%d of %d results were reported", reported, len(cases))
	}
	for name, want := range module {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s was changed: %v\n%s", name, err, got)
		}
	}
	if left, err := os.ReadDir(c.dir); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

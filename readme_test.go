package limiter_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// examples are the files that the README's snippets are taken from.
var examples = []string{"example_test.go", "postgres/example_test.go"}

// snippets returns the README's Go code, the programs apart.
func snippets(t *testing.T) (programs, fragments []string) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		if strings.HasPrefix(m[1], "package main") {
			programs = append(programs, m[1])
		} else {
			fragments = append(fragments, m[1])
		}
	}
	if len(programs) == 0 || len(fragments) == 0 {
		t.Fatal("the README shows no program or no snippet")
	}
	return programs, fragments
}

func TestTheReadmesSnippetsStandInCompiledExamples(t *testing.T) {
	t.Parallel()
	var compiled []string
	for _, name := range examples {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		compiled = append(compiled, unindent(string(b)))
	}
	all := strings.Join(compiled, "\n")
	_, fragments := snippets(t)
	for _, f := range fragments {
		if !strings.Contains(all, unindent(f)) {
			t.Errorf("no example holds this snippet of the README:\n%s", f)
		}
	}
}

// unindent removes what an example's surroundings add to the start of a line.
func unindent(code string) string {
	lines := strings.Split(strings.TrimSpace(code), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

func TestTheReadmesProgramRuns(t *testing.T) {
	t.Parallel()
	programs, _ := snippets(t)
	for _, program := range programs {
		dir := t.TempDir()
		source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program.exe")
		if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source).CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		run := exec.CommandContext(t.Context(), binary)
		run.Dir = dir // where it leaves its database
		out, err := run.CombinedOutput()
		if err != nil {
			t.Fatalf("the program failed: %v\n%s", err, out)
		}
		const want = "true 4 0s\ntrue 3 0s\ntrue 2 0s\ntrue 1 0s\ntrue 0 0s\nfalse 0 1m0s\n"
		if string(out) != want {
			t.Errorf("the program printed\n%swant\n%s", out, want)
		}
	}
}

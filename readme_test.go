package limiter_test

import (
	"cmp"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// walk calls f with the path and the text of every file of the repository whose path is wanted.
func walk(t *testing.T, wanted func(path string) bool, f func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() {
			if path != "." && (name[0] == '.' || name == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !wanted(filepath.ToSlash(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		f(filepath.ToSlash(path), strings.ReplaceAll(string(text), "\r\n", "\n"))
		return err
	})
	must(t, err)
}

// isMarkdown reports whether a file is documentation in Markdown.
func isMarkdown(file string) bool { return path.Ext(file) == ".md" }

// snippets returns the Go code of every Markdown file. Whole programs are apart, because another
// test runs them.
func snippets(t *testing.T) (programs []string, fragments map[string][]string) {
	t.Helper()
	fragments = map[string][]string{}
	walk(t, isMarkdown, func(file, text string) {
		for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(m[1], "package main") {
				programs = append(programs, m[1])
			} else {
				fragments[file] = append(fragments[file], m[1])
			}
		}
	})
	return programs, fragments
}

func TestSnippetsAreCompiled(t *testing.T) {
	t.Parallel()
	compiled := map[string]string{}
	isExample := func(file string) bool {
		name := path.Base(file)
		return strings.HasPrefix(name, "example_") && strings.HasSuffix(name, "_test.go") ||
			strings.HasPrefix(file, "examples/") && path.Ext(name) == ".go"
	}
	walk(t, isExample, func(file, text string) { compiled[file] = unindent(text) })
	programs, fragments := snippets(t)
	// If the pattern of a snippet matched nothing, this test would always pass.
	if len(programs) < 2 {
		t.Errorf("the pages show %d programs, want those of the README and of the guide", len(programs))
	}
	for _, file := range []string{"docs/guide.md", "docs/operations.md", "docs/recipes.md"} {
		if len(fragments[file]) == 0 {
			t.Errorf("%s shows no snippet", file)
		}
	}
	const maxLines = 25 // what a reader takes in at once
	for file, list := range fragments {
		for _, f := range list {
			if code, _, _ := strings.Cut(f, "// Output:"); strings.Count(code, "\n") > maxLines && strings.HasPrefix(file, "docs/") {
				t.Errorf("a snippet of %s has more than %d lines:\n%s", file, maxLines, f)
			}
			stands := func(text string) bool { return strings.Contains(text+"\n", unindent(f)+"\n") }
			if !slices.ContainsFunc(slices.Collect(maps.Values(compiled)), stands) {
				t.Errorf("no example holds this snippet of %s:\n%s", file, f)
			}
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

func TestTheGuidesProgramsCompileAndRun(t *testing.T) {
	t.Parallel()
	programs, _ := snippets(t)
	for _, program := range programs {
		dir := t.TempDir()
		source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program.exe")
		must(t, os.WriteFile(source, []byte(program), 0o600))
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source).CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		if strings.Contains(program, "DATABASE_URL") {
			continue // it needs a server; that it compiles is enough here
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

func TestSpeedsOfThePagesStandInTheResults(t *testing.T) {
	t.Parallel()
	var results strings.Builder
	walk(t, func(file string) bool { return isMarkdown(file) && strings.HasPrefix(file, "bench/results/") },
		func(_, text string) { results.WriteString(text) })
	rates := regexp.MustCompile(`[\d,]+,\d{3}\b`)
	measured := rates.FindAllString(results.String(), -1)
	claims := 0
	for file, part := range map[string][2]string{
		"README.md": {"## How fast", "## How it is proved"}, "docs/performance.md": {"# Performance"},
		"docs/sizing.md": {"# Sizing", "## When to add what"},
	} {
		text, err := os.ReadFile(file)
		must(t, err)
		_, section, _ := strings.Cut(string(text), part[0]+"\n")
		section, _, _ = strings.Cut(section, "\n"+cmp.Or(part[1], "no end")+"\n")
		for _, rate := range rates.FindAllString(section, -1) {
			claims++
			if !slices.Contains(measured, rate) {
				t.Errorf("%s says %s, which no file of bench/results does", file, rate)
			}
		}
	}
	if claims < 50 {
		t.Errorf("found %d rates in the pages, want at least 50", claims)
	}
}

func TestPagesNameFilesThatThereAre(t *testing.T) {
	t.Parallel()
	named := 0
	isPage := func(file string) bool { return isMarkdown(file) && strings.HasPrefix(file, "docs/") }
	walk(t, isPage, func(page, text string) {
		for _, m := range regexp.MustCompile("`((?:\\w+/)*\\w+\\.(?:go|jsonl|svg|sql))`").FindAllStringSubmatch(text, -1) {
			named++
			if _, err := os.Stat(m[1]); err != nil && m[1] != "main.go" { // which the reader writes
				t.Errorf("%s names %s, which is no file of this repository", page, m[1])
			}
		}
	})
	if named < 80 {
		t.Errorf("found %d files in the pages, want at least 80", named)
	}
}

func TestTheRecipeGetsTheTestedTestcontainers(t *testing.T) {
	t.Parallel()
	const module = "github.com/testcontainers/testcontainers-go/modules/postgres"
	goMod, err := os.ReadFile("go.mod")
	must(t, err)
	version := regexp.MustCompile(regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(goMod)
	if version == nil {
		t.Fatalf("go.mod does not require %s", module)
	}
	if want := "go get " + module + "@" + string(version[1]) + "\n"; !holds(t, "docs/recipes.md", want) {
		t.Errorf("docs/recipes.md does not hold %q", want)
	}
}

func TestTheReadmeAndTheDesignAreShort(t *testing.T) {
	t.Parallel()
	for file, most := range map[string]int{"README.md": 800, "DESIGN.md": 2300, "SECURITY.md": 1450} { // words that a reader takes in
		text, err := os.ReadFile(file)
		must(t, err)
		if n := len(strings.Fields(string(text))); n > most {
			t.Errorf("%s has %d words, want at most %d; shorten it, or move what is more to docs", file, n, most)
		}
	}
}

func TestTablesOfRulesNameTestsThatThereAre(t *testing.T) {
	t.Parallel()
	for page, least := range map[string]int{"SECURITY.md": 40, "prove/README.md": 100, "CONTRIBUTING.md": 20} {
		text, err := os.ReadFile(page)
		must(t, err)
		named := 0
		for _, m := range regexp.MustCompile("`([\\w/]+)\\.((?:Test|Fuzz|Example)\\w+)`").FindAllStringSubmatch(string(text), -1) {
			named++
			dir := m[1]
			if dir == "limiter" {
				dir = "."
			}
			if !holds(t, dir+"/*_test.go", "\nfunc "+m[2]+"(") {
				t.Errorf("%s: there is no %s.%s", page, m[1], m[2])
			}
		}
		for _, m := range regexp.MustCompile("`storetest (\"[^\"]+\")`").FindAllStringSubmatch(string(text), -1) {
			named++
			if !holds(t, "storetest/*.go", "\n\t\t"+m[1]+",\n") {
				t.Errorf("%s: there is no case %s in storetest", page, m[1])
			}
		}
		if named < least {
			t.Errorf("%s names %d tests, want at least %d", page, named, least)
		}
	}
}

// holds reports whether one of the files that match pattern holds text.
func holds(t *testing.T, pattern, text string) bool {
	t.Helper()
	files, err := filepath.Glob(pattern)
	must(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(t, err)
		if strings.Contains(string(content), text) {
			return true
		}
	}
	return false
}

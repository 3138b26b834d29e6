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

	"github.com/sqlimit/limiter/internal/testenv"
)

// files returns the texts of the repository's files whose paths match a pattern, by their paths.
func files(t *testing.T, pattern string) map[string]string {
	t.Helper()
	wanted, texts := regexp.MustCompile(pattern), map[string]string{}
	must(t, filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && file != "." && (name[0] == '.' || name == "testdata"):
			return fs.SkipDir
		case !entry.IsDir() && wanted.MatchString(filepath.ToSlash(file)):
			texts[filepath.ToSlash(file)] = read(t, file)
		}
		return nil
	}))
	return texts
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// pages matches documentation in Markdown.
const pages = `\.md$`

// snippets returns the Go code of every Markdown file. Whole programs are apart, because another
// test runs them.
func snippets(t *testing.T) (programs []string, fragments map[string][]string) {
	t.Helper()
	fragments = map[string][]string{}
	for file, text := range files(t, pages) {
		for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(m[1], "package main") {
				programs = append(programs, m[1])
			} else {
				fragments[file] = append(fragments[file], m[1])
			}
		}
	}
	return programs, fragments
}

func TestSnippetsAreCompiled(t *testing.T) {
	t.Parallel()
	var compiled strings.Builder
	for _, text := range files(t, `(^|/)example_(\w+_)?test\.go$|^examples/.*\.go$`) {
		compiled.WriteString(unindent(text) + "\n")
	}
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
			if !strings.Contains(compiled.String(), unindent(f)+"\n") {
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
		testenv.Equal(t, string(out), want, "the program printed")
	}
}

func TestSpeedsOfThePagesStandInTheResults(t *testing.T) {
	t.Parallel()
	rates := regexp.MustCompile(`[\d,]+,\d{3}\b`)
	var measured []string
	for _, text := range files(t, `^bench/results/.*\.md$`) {
		measured = append(measured, rates.FindAllString(text, -1)...)
	}
	claims := 0
	for file, part := range map[string][2]string{
		"README.md": {"## How fast", "## How it is proved"}, "docs/performance.md": {"# Performance"},
		"docs/sizing.md": {"# Sizing", "## When to add what"},
	} {
		_, section, _ := strings.Cut(read(t, file), part[0]+"\n")
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
	for page, text := range files(t, `^docs/.*\.md$`) {
		for _, m := range regexp.MustCompile("`((?:\\w+/)*\\w+\\.(?:go|jsonl|svg|sql))`").FindAllStringSubmatch(text, -1) {
			named++
			if _, err := os.Stat(m[1]); err != nil && m[1] != "main.go" { // which the reader writes
				t.Errorf("%s names %s, which is no file of this repository", page, m[1])
			}
		}
	}
	if named < 80 {
		t.Errorf("found %d files in the pages, want at least 80", named)
	}
}

func TestTheRecipeGetsTheTestedTestcontainers(t *testing.T) {
	t.Parallel()
	const module = "github.com/testcontainers/testcontainers-go/modules/postgres"
	version := regexp.MustCompile(regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(read(t, "go.mod"))
	if version == nil {
		t.Fatalf("go.mod does not require %s", module)
	}
	if want := "go get " + module + "@" + version[1] + "\n"; !strings.Contains(read(t, "docs/recipes.md"), want) {
		t.Errorf("docs/recipes.md does not hold %q", want)
	}
}

func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	for these, most := range map[string]int{`^README\.md$`: 800, `^DESIGN\.md$`: 2300, `^SECURITY\.md$`: 1450, `^docs/.*\.md$`: 20_900} {
		var n int // words that a reader takes in
		for _, text := range files(t, these) {
			n += len(strings.Fields(text))
		}
		if n == 0 || n > most {
			t.Errorf("%s: %d words, want 1 to %d; shorten it, or move what is more to another page", these, n, most)
		}
	}
}

func TestTablesOfRulesNameTestsThatThereAre(t *testing.T) {
	t.Parallel()
	tests := map[string]string{} // of each package
	for file, text := range files(t, `_test\.go$`) {
		tests[path.Dir(file)] += "\n" + text
	}
	cases := strings.Join(slices.Collect(maps.Values(files(t, `^storetest/`))), "")
	for page, least := range map[string]int{"SECURITY.md": 40, "prove/README.md": 100, "CONTRIBUTING.md": 20} {
		text, named := read(t, page), 0
		for _, m := range regexp.MustCompile("`([\\w/]+)\\.((?:Test|Fuzz|Example)\\w+)`").FindAllStringSubmatch(text, -1) {
			named++
			dir := m[1]
			if dir == "limiter" {
				dir = "."
			}
			if !strings.Contains(tests[dir], "\nfunc "+m[2]+"(") {
				t.Errorf("%s: there is no %s.%s", page, m[1], m[2])
			}
		}
		for _, m := range regexp.MustCompile("`storetest (\"[^\"]+\")`").FindAllStringSubmatch(text, -1) {
			named++
			if !strings.Contains(cases, "\n\t\t"+m[1]+",\n") {
				t.Errorf("%s: there is no case %s in storetest", page, m[1])
			}
		}
		if named < least {
			t.Errorf("%s names %d tests, want at least %d", page, named, least)
		}
	}
}

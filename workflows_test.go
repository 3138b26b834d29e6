package limiter_test

import (
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workflow is what is looked at of a file in .github/workflows.
type workflow struct {
	On          map[string]any
	Permissions map[string]string
	Jobs        map[string]struct {
		Permissions map[string]string
		Minutes     int `yaml:"timeout-minutes"`
		Steps       []step
	}
}

type step struct {
	Uses yaml.Node
	Run  string
	With map[string]any
}

// workflows returns the workflows by the names of their files.
func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	names, err := filepath.Glob(".github/workflows/*")
	if err != nil || len(names) < 2 {
		t.Fatalf("workflows: %q, %v", names, err)
	}
	all := map[string]workflow{}
	for _, file := range names {
		var w workflow
		if err := yaml.Unmarshal([]byte(read(t, file)), &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(w.On) == 0 || len(w.Jobs) == 0 {
			t.Errorf("%s does nothing, or never", file)
		}
		all[file] = w
	}
	return all
}

// steps returns all steps with the names of their workflows and jobs.
func steps(t *testing.T) iter.Seq2[string, step] {
	t.Helper()
	return func(yield func(string, step) bool) {
		for file, w := range workflows(t) {
			for name, job := range w.Jobs {
				for _, s := range job.Steps {
					if !yield(file+": job "+name, s) {
						return
					}
				}
			}
		}
	}
}

var (
	pinned  = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	release = regexp.MustCompile(`^# v\d+\.\d+\.\d+$`)
	inRepo  = regexp.MustCompile(`(?:^|[\s"'=])(\.(?:ci)?/[\w./-]*)`)
	program = regexp.MustCompile(`go (?:run|install) (\S+@\S+)`)
)

func TestWorkflowPermissions(t *testing.T) {
	t.Parallel()
	findings := map[string]string{"contents": "read", "security-events": "write"}
	score := map[string]string{"contents": "read", "security-events": "write", "id-token": "write"}
	for file, w := range workflows(t) {
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s has permissions %v, want contents: read", file, w.Permissions)
		}
		if _, found := w.On["pull_request_target"]; found {
			t.Errorf("%s runs with secrets on what others propose", file)
		}
		for name, job := range w.Jobs {
			want := map[string]map[string]string{"release": {"contents": "write"}, "codeql": findings, "scorecard": score}[name]
			if !maps.Equal(job.Permissions, want) {
				t.Errorf("%s: job %s asks for permissions %v, want %v", file, name, job.Permissions, want)
			}
			if job.Minutes < 1 {
				t.Errorf("%s: job %s has no time limit of its own", file, name)
			}
		}
	}
}

func TestWorkflowsUsePinnedActions(t *testing.T) {
	t.Parallel()
	versions := map[string]string{} // an action is the same everywhere
	for where, s := range steps(t) {
		uses := s.Uses.Value
		if uses == "" {
			continue
		}
		action, commit, _ := strings.Cut(uses, "@")
		if !pinned.MatchString(uses) || !release.MatchString(s.Uses.LineComment) {
			t.Errorf("%s uses %s %s, want 40 hex digits and their version", where, uses, s.Uses.LineComment)
		}
		if was, found := versions[action]; found && was != commit {
			t.Errorf("%s uses %s, elsewhere it is %s", where, uses, was)
		}
		versions[action] = commit
		if action == "actions/checkout" && s.With["persist-credentials"] != false {
			t.Errorf("%s leaves its credentials to all that runs after the checkout", where)
		}
	}
}

func TestWorkflowsRunExistingFiles(t *testing.T) {
	t.Parallel()
	var named []string
	for where, s := range steps(t) {
		if strings.Contains(s.Run, "${{") {
			t.Errorf("%s runs text that somebody else may have written:\n%s", where, s.Run)
		}
		for _, m := range inRepo.FindAllStringSubmatch(s.Run, -1) {
			if _, err := os.Stat(strings.TrimSuffix(m[1], "...")); err != nil {
				t.Errorf("%s: %v", where, err)
			}
			named = append(named, m[1])
		}
		for _, m := range program.FindAllStringSubmatch(s.Run, -1) {
			if !regexp.MustCompile(`@v\d+\.\d+\.\d+$`).MatchString(m[1]) {
				t.Errorf("%s runs %s, of no fixed version", where, m[1])
			}
		}
	}
	for _, want := range []string{".ci/run", ".ci/fuzz.sh", ".ci/linter.sh", ".ci/packages.sh", ".ci/release.sh", "./prove", "./prove/mutants", "./..."} {
		if !slices.Contains(named, want) {
			t.Errorf("no workflow runs %s (they name %q)", want, named)
		}
	}
}

// moduleDir returns the directory of a module as all lists are compared: "./", "./bench" and so on.
func moduleDir(dir string) string { return "./" + strings.TrimPrefix(path.Clean("/"+dir), "/") }

// Each list of modules has all modules of this repository.
func TestListsOfModules(t *testing.T) {
	t.Parallel()
	var want []string
	for file := range files(t, `(^|/)go\.mod$`) {
		want = append(want, moduleDir(path.Dir(file)))
	}
	slices.Sort(want)
	lists := 0
	check := func(where string, dirs []string) {
		t.Helper()
		lists++
		for i := range dirs {
			dirs[i] = moduleDir(dirs[i])
		}
		if !slices.Equal(dirs, want) {
			t.Errorf("%s names the modules %q, want %q", where, dirs, want)
		}
	}

	_, list, _ := strings.Cut(read(t, "go.work"), "use (") // .ci/run lints and tidies these
	list, _, _ = strings.Cut(list, ")")
	check("go.work", strings.Fields(list))
	for where, s := range steps(t) {
		if _, list, found := strings.Cut(s.Run, "for module in "); found {
			list, _, _ = strings.Cut(list, ";")
			check(where, strings.Fields(list))
		}
	}
	var config struct {
		Version int
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directories []string
			Groups      map[string]struct{ Patterns []string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/dependabot.yaml")), &config); err != nil || config.Version != 2 {
		t.Fatalf("version %d, %v", config.Version, err)
	}
	together, actions := false, false
	for _, u := range config.Updates {
		actions = actions || u.Ecosystem == "github-actions"
		if u.Ecosystem == "gomod" {
			check("dependabot.yaml", u.Directories)
			for _, g := range u.Groups {
				together = together || slices.Contains(g.Patterns, "modernc.org/*")
			}
		}
	}
	if !actions || !together {
		t.Errorf("dependabot.yaml updates actions: %v; modernc.org/sqlite with modernc.org/libc: %v", actions, together)
	}
	if lists < 4 || len(want) < 2 {
		t.Errorf("found %d lists of the modules %q, want go.work, dependabot.yaml and 2 jobs", lists, want)
	}
}

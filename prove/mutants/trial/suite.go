// Package trial runs tests on the mutants of package generate, and tells which survive.
package trial

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sqlimit/limiter/prove/mutants/generate"
)

// WriteOverlay writes the file for -overlay, which names changed files by those that they replace.
func WriteOverlay(dir string, replace map[string]string) (file string, err error) {
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}

// program returns the path of the test program of a package. It has all mutants in it.
func (c *Campaign) program(pkg string) string {
	return filepath.Join(c.Dir, "root"+strings.NewReplacer("/", "-", ".", "").Replace(pkg)+".test")
}

// suite is tests of one package.
type suite struct {
	pkg   string
	tests []*test
}

// test is a test, or several that run as one, on the code as it is.
type test struct {
	pkg     string // from the root of the repository: "./memory"
	name    string
	run     string // for -run
	took    time.Duration
	reaches []byte // by site; nil: all
	bad     string // why it is not used
}

// longest is how long a test may take by itself on the code as it is. Slower ones are not used.
const longest = time.Minute

// suite builds the test program, once, and lists its tests.
func (c *Campaign) suite(ctx context.Context, which Suite) (*suite, error) {
	pkg, program := which.Package, c.program(which.Package)
	if _, missing := os.Stat(program); missing != nil {
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", c.overlay, "-o", program, pkg)
		cmd.Dir = c.Root
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
		}
	}
	cmd := exec.CommandContext(ctx, program, "-test.list=^(Test|Example|Fuzz)")
	cmd.Dir, cmd.Env = filepath.Join(c.Root, pkg), append(os.Environ(), c.Env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w\n%s", pkg, err, out)
	}
	only, skip, s := regexp.MustCompile(which.Only), regexp.MustCompile(which.Skip), &suite{pkg: pkg}
	for _, name := range strings.Fields(string(out)) {
		if only.MatchString(name) && (which.Skip == "" || !skip.MatchString(name)) {
			s.tests = append(s.tests, &test{pkg: pkg, name: name, run: "^" + name + "$"})
		}
	}
	if len(s.tests) == 0 {
		return nil, fmt.Errorf("%s has no test that matches %q", pkg, which.Only)
	}
	return s, nil
}

// whole returns the suites of a target, each as one test, with what the first reaches.
func (c *Campaign) whole(ctx context.Context, target Target) (suites []*suite, err error) {
	for i, which := range target.Suites {
		s, err := c.suite(ctx, which)
		if err != nil {
			return nil, err
		}
		all := &test{pkg: s.pkg, name: "all", run: pattern(s.tests), took: which.Takes}
		if i == 0 {
			if err := c.record(ctx, all); err != nil {
				return nil, err
			}
			if all.bad != "" {
				return nil, fmt.Errorf("%s: %s", s.pkg, all.bad)
			}
		}
		suites = append(suites, &suite{pkg: s.pkg, tests: []*test{all}})
	}
	return suites, nil
}

// record runs a test on the code as it is, and notes what it reaches. A test may fail
// because an SQL text that is recorded has one more comment: then it runs again without.
func (c *Campaign) record(ctx context.Context, t *test) error {
	file := filepath.Join(c.Dir, "reached-"+strings.ReplaceAll(t.pkg, "/", "-")+"-"+t.name)
	defer os.Remove(file)
	if err := os.WriteFile(file, make([]byte, c.made.Sites), 0o666); err != nil {
		return err
	}
	for _, reached := range []string{file, ""} {
		v, err := c.run(ctx, []*test{t}, nil, reached, 3*longest)
		if err != nil {
			return err
		}
		t.took, t.bad = v.took, ""
		switch {
		case v.failed:
			t.bad = "it fails on the code as it is:\n" + v.output
			continue
		case v.took > longest:
			t.bad = fmt.Sprintf("it takes %.0f s", v.took.Seconds())
		case strings.Contains(v.output, "--- SKIP: "+t.name+" "):
			t.bad = skipped
		}
		break
	}
	var err error
	t.reaches, err = os.ReadFile(file)
	if t.bad == "" && !bytes.Contains(t.reaches, []byte{1}) {
		t.bad = useless
	}
	return err
}

// Why a test is not used, if that is as it should be.
const (
	skipped = "it is skipped"
	useless = "it reaches no mutant"
)

// reaching returns the tests that reach a mutant. The first are those that are fast and have killed most mutants of
// the same file. The first test always runs on this mutant alone.
func (c *Campaign) reaching(s *suite, m *generate.Mutant) (tests, rest []*test) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range s.tests {
		if t.bad == "" && (len(t.reaches) == 0 || t.reaches[m.Site] != 0) {
			tests = append(tests, t)
		}
	}
	perKill := func(t *test) time.Duration { return t.took / time.Duration(1+c.found[m.File+s.pkg+" "+t.name]) }
	slices.SortStableFunc(tests, func(a, b *test) int { return cmp.Compare(perKill(a), perKill(b)) })
	total := time.Duration(0)
	for i, t := range tests {
		if total += perKill(t); i > 0 && total > alone {
			return tests[:i], tests[i:]
		}
	}
	return tests, nil
}

// groups divides tests into runs, each of which takes longer than the ones before it.
func groups(tests []*test) (runs [][]*test) {
	bound, total := 50*time.Millisecond, time.Duration(0)
	for _, t := range tests {
		if len(runs) == 0 || total+t.took > bound {
			runs = append(runs, nil)
			bound, total = bound*6, 0
		}
		runs[len(runs)-1] = append(runs[len(runs)-1], t)
		total += t.took
	}
	return runs
}

// limit is how long a run may take: three times what it takes on the code as it is, at least 10 s.
func limit(tests []*test) time.Duration { return max(10*time.Second, 3*taken(tests)) }

func taken(tests []*test) (total time.Duration) {
	for _, t := range tests {
		total += t.took
	}
	return total
}

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
)

// program is the test program of one package. It has all mutants in it.
type program struct {
	pkg  string // from the root of the repository: "./memory"
	path string
}

// WriteOverlay writes the file for -overlay, which names changed files by those that they replace.
func WriteOverlay(dir string, replace map[string]string) (file string, err error) {
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}

// program builds the test program of a package, once.
func (c *Campaign) program(ctx context.Context, pkg string) (*program, error) {
	if p := c.programs[pkg]; p != nil {
		return p, nil
	}
	name := strings.NewReplacer("/", "-", ".", "").Replace(pkg)
	p := &program{pkg: pkg, path: filepath.Join(c.Dir, "root"+name+".test")}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", c.overlay, "-o", p.path, pkg)
	cmd.Dir = c.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
	}
	c.programs[pkg] = p
	return p, nil
}

type suite struct {
	program  *program
	tests    []*test
	selected []string // the names, if all of them run together as one test
}

// test is a test on the code as it is.
type test struct {
	name    string
	took    time.Duration
	reaches []byte // by site
	bad     string // why it is not used
}

// longest is how long a test may take by itself on the code as it is. Slower ones are not used.
const longest = time.Minute

func (c *Campaign) suite(ctx context.Context, which Suite) (*suite, error) {
	p, err := c.program(ctx, which.Package)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, p.path, "-test.list=.")
	cmd.Dir, cmd.Env = filepath.Join(c.Root, p.pkg), append(os.Environ(), c.Env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w\n%s", p.pkg, err, out)
	}
	only, skip := regexp.MustCompile(which.Only), regexp.MustCompile(which.Skip)
	s := &suite{program: p}
	for _, name := range strings.Fields(string(out)) {
		isTest := strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Example") || strings.HasPrefix(name, "Fuzz")
		if isTest && only.MatchString(name) && (which.Skip == "" || !skip.MatchString(name)) {
			s.tests = append(s.tests, &test{name: name})
		}
	}
	if len(s.tests) == 0 {
		return nil, fmt.Errorf("%s has no test that matches %q", p.pkg, which.Only)
	}
	return s, nil
}

// record runs a test, or some as one, on the code as it is, and notes what it reaches. A test may fail
// because an SQL text that is recorded has one more comment: then it runs again without.
func (c *Campaign) record(ctx context.Context, p *program, t *test, run []string, sites int) error {
	file := filepath.Join(c.Dir, "reached-"+strings.ReplaceAll(p.pkg, "/", "-")+"-"+t.name)
	defer os.Remove(file)
	if err := os.WriteFile(file, make([]byte, sites), 0o666); err != nil {
		return err
	}
	for _, reached := range []string{file, ""} {
		v, err := c.run(ctx, p, run, 0, reached, 3*longest)
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

// A mutant gets a tenth of the time of a suite, at least leastTime, and at least leastTests. Most
// mutants that the fast tests do not kill survive them all.
const (
	leastTime  = 20 * time.Second
	leastTests = 3
)

// reaching returns the tests that reach a site, fastest first, as far as there is time for them.
func (s *suite) reaching(site int, thorough bool) []*test {
	var tests []*test
	var total time.Duration
	for _, t := range s.tests {
		if t.bad == "" {
			total += t.took
			if t.reaches[site] != 0 {
				tests = append(tests, t)
			}
		}
	}
	slices.SortStableFunc(tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	left := max(leastTime, total/10)
	for i, t := range tests {
		if left -= t.took; left < 0 && i >= leastTests && !thorough {
			return tests[:i]
		}
	}
	return tests
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
func limit(tests []*test) time.Duration {
	total := time.Duration(0)
	for _, t := range tests {
		total += t.took
	}
	return max(10*time.Second, 3*total)
}

func names(tests []*test) []string {
	list := make([]string, len(tests))
	for i, t := range tests {
		list[i] = t.name
	}
	return list
}

package trial

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sqlimit/limiter/prove/mutants/generate"
)

// memoryLimit is how much memory a test program may map, in kB. A mutant may never stop to allocate.
const memoryLimit = 12 << 20

// unwind is how much longer a program is waited for that does not stop itself.
const unwind = 5 * time.Second

type verdict struct {
	failed, timedOut bool
	test             string // the first that failed, or was running when the program stopped
	took             time.Duration
	output           string // the end of it
}

// run runs tests of a program one time, up to the first that fails. An error means that it could not.
func (c *Campaign) run(ctx context.Context, p *program, tests []string, mutant int, reached string, limit time.Duration) (verdict, error) {
	temp, err := os.MkdirTemp(c.Dir, "run")
	if err != nil {
		return verdict{}, err
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o777|os.ModeSticky); err != nil {
		return verdict{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, limit+unwind)
	defer cancel()
	cmd := exec.CommandContext(bounded, "sh", "-c", fmt.Sprintf(`ulimit -v %d; exec "$@"`, memoryLimit), "sh", p.path,
		"-test.run="+pattern(tests), "-test.v", "-test.count=1", "-test.failfast", "-test.timeout="+limit.String())
	cmd.Dir = filepath.Join(c.Root, p.pkg)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Env = append(cmd.Env, "TMPDIR="+temp, fmt.Sprintf("%s=%d", generate.Chosen, mutant), generate.Reached+"="+reached)
	var out watcher
	cmd.Stdout, cmd.Stderr = &out, &out
	// The tests' own children end with them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	cmd.WaitDelay = unwind
	began := time.Now()
	err = cmd.Run()
	v := verdict{took: time.Since(began), test: cmp.Or(out.failed, out.running), output: string(out.tail)}
	if cmd.Process != nil {
		_ = kill() // what is left of the group
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return v, ctx.Err()
	case bounded.Err() != nil || out.timedOut:
		v.failed, v.timedOut = true, true
	case errors.As(err, &exit):
		v.failed = true
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return v, err
	}
	return v, nil
}

func pattern(tests []string) string {
	quoted := make([]string, len(tests))
	for i, t := range tests {
		quoted[i] = regexp.QuoteMeta(t)
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}

// watcher reads what a test program prints. It keeps only the end.
type watcher struct {
	line, tail      []byte
	failed, running string
	timedOut        bool
}

// kept is how much of the output a watcher keeps.
const kept = 8 << 10

func (w *watcher) Write(b []byte) (int, error) {
	w.line = append(w.line, b...)
	for {
		line, rest, whole := bytes.Cut(w.line, []byte("\n"))
		if !whole {
			break
		}
		w.read(line)
		w.line = rest
	}
	w.line = w.line[:min(len(w.line), 1000)]
	w.tail = append(w.tail, b...)
	if len(w.tail) > 2*kept {
		w.tail = append([]byte(nil), w.tail[len(w.tail)-kept:]...)
	}
	return len(b), nil
}

// status matches a line that tells what a test does, and has the name of the test without its subtests.
var status = regexp.MustCompile(`^\s*(=== RUN|=== CONT|--- FAIL:)\s+([^\s/]+)`)

func (w *watcher) read(line []byte) {
	if m := status.FindSubmatch(line); m != nil {
		if string(m[1]) != "--- FAIL:" {
			w.running = string(m[2])
		} else if w.failed == "" {
			w.failed = string(m[2])
		}
	}
	w.timedOut = w.timedOut || bytes.HasPrefix(bytes.TrimSpace(line), []byte("panic: test timed out after "))
}

// The outcomes of a mutant.
const (
	Killed     = "killed"
	Survived   = "survived"
	ByChance   = "by chance"   // a test failed once and passed once, and no other failed twice
	NotReached = "not reached" // no test runs the code that it changes
)

// Result is what came of a mutant.
type Result struct {
	Mutant  *generate.Mutant
	Outcome string
	Test    string // what killed it, as in "./memory TestStore"
}

// try runs the tests that reach a mutant, until one fails twice. The hint is the test that killed it
// the last time.
func (c *Campaign) try(ctx context.Context, suites []*suite, m *generate.Mutant) (Result, error) {
	result := Result{Mutant: m, Outcome: NotReached}
	hint := strings.TrimSuffix(c.Hints[m.Identity()].Test, timeout)
	type run struct {
		suite *suite
		tests []*test
	}
	var runs []run
	for _, s := range suites {
		for _, t := range s.tests {
			if hint == s.program.pkg+" "+t.name && t.bad == "" {
				runs = append(runs, run{s, []*test{t}})
			}
		}
	}
	for _, s := range suites {
		for _, tests := range groups(s.reaching(m.Site, c.Thorough)) {
			result.Outcome = Survived
			runs = append(runs, run{s, tests})
		}
	}
	for _, r := range runs {
		test, certain, err := c.kills(ctx, r.suite, r.tests, m)
		if err != nil {
			return result, err
		}
		if test == "" {
			continue
		}
		result.Outcome, result.Test = ByChance, r.suite.program.pkg+" "+test
		if certain {
			result.Outcome = Killed
			return result, nil
		}
	}
	return result, nil
}

// timeout follows the name of a test that did not end.
const timeout = " (timeout)"

// kills runs tests on a mutant. If one fails, it runs that one again, and then all of them if it
// passes alone.
func (c *Campaign) kills(ctx context.Context, s *suite, run []*test, m *generate.Mutant) (by string, certain bool, err error) {
	first, err := c.run(ctx, s.program, names(run), m.ID, "", limit(run))
	if err != nil || !first.failed {
		return "", false, err
	}
	if first.test == "" {
		first.test = "(start)"
	}
	if first.timedOut {
		return first.test + timeout, true, nil
	}
	alone := run
	if i := slices.IndexFunc(run, func(t *test) bool { return t.name == first.test }); i >= 0 {
		alone = run[i : i+1]
	}
	for _, again := range [][]*test{alone, run} {
		second, err := c.run(ctx, s.program, names(again), m.ID, "", limit(again))
		if err != nil {
			return "", false, err
		}
		if second.failed {
			return first.test, true, nil
		}
		if len(alone) == len(run) {
			break
		}
	}
	return first.test, false, nil
}

// String is one line for people.
func (r Result) String() string {
	m := r.Mutant
	return fmt.Sprintf("%-11s %s %s: %s: %s -> %s (%d) %s", r.Outcome, m.File, m.Func, m.Operator, m.Before, m.After, m.Ordinal, r.Test)
}

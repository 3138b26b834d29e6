package trial

import (
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
func (c *Campaign) run(ctx context.Context, pkg string, tests []*test, mutant int, reached string, limit time.Duration) (verdict, error) {
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
	// Who may mount a file system can unshare: what a killed test has mounted ends with it.
	cmd := exec.CommandContext(bounded, "sh", "-c", fmt.Sprintf(`ulimit -v %d; unshare -m true 2>&- && exec unshare -m "$@"; exec "$@"`, memoryLimit), "sh", c.program(pkg),
		"-test.run="+pattern(tests), "-test.v", "-test.count=1", "-test.failfast", "-test.timeout="+limit.String())
	cmd.Dir = filepath.Join(c.Root, pkg)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Env = append(cmd.Env, "TMPDIR="+temp, fmt.Sprintf("%s=%d", generate.Chosen, mutant), generate.Reached+"="+reached)
	var out tail
	cmd.Stdout, cmd.Stderr = &out, &out
	// The tests' own children end with them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	cmd.WaitDelay = unwind
	began := time.Now()
	err = cmd.Run()
	v := verdict{took: time.Since(began), test: out.test(), output: string(out[max(0, len(out)-kept):])}
	if cmd.Process != nil {
		_ = kill() // what is left of the group
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return v, ctx.Err()
	case bounded.Err() != nil || timedOut.Match(out):
		v.failed, v.timedOut = true, true
	case errors.As(err, &exit):
		v.failed = true
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return v, err
	}
	return v, nil
}

func pattern(tests []*test) string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = t.run
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// kept is how much of the output a verdict keeps. The rest of a tail is for the lines that tell what a test does.
const kept = 8 << 10

// tail keeps the end of what is written to it.
type tail []byte

func (t *tail) Write(b []byte) (int, error) {
	*t = append(*t, b...)
	if len(*t) > 200*kept {
		*t = slices.Clone((*t)[len(*t)-100*kept:])
	}
	return len(b), nil
}

// These match lines that tell what a test does, and have its name without its subtests.
var (
	running  = regexp.MustCompile(`(?m)^\s*=== (?:RUN|CONT)\s+([^\s/]+)`)
	failed   = regexp.MustCompile(`(?m)^\s*--- FAIL:\s+([^\s/]+)`)
	timedOut = regexp.MustCompile(`(?m)^\s*panic: test timed out after `)
)

// test returns the first test that failed, or else the last that ran.
func (t tail) test() string {
	if m := failed.FindSubmatch(t); m != nil {
		return string(m[1])
	}
	if all := running.FindAllSubmatch(t, -1); len(all) > 0 {
		return string(all[len(all)-1][1])
	}
	return ""
}

// The outcomes of a mutant.
const (
	Killed     = "killed"
	Survived   = "survived"
	ByChance   = "by chance"   // a test failed once and passed once, and no other failed twice
	NotReached = "not reached" // no test runs the code that it changes
	Undecided  = "undecided"   // the time of a sample was over before all tests had run
)

// Result is what came of a mutant.
type Result struct {
	Mutant  *generate.Mutant
	Outcome string
	Test    string // what killed it, as in "./memory TestStore"
}

// try runs the tests that reach a mutant, until one fails twice.
func (c *Campaign) try(ctx context.Context, suites []*suite, m *generate.Mutant, end time.Time) (Result, error) {
	result := Result{Mutant: m, Outcome: NotReached}
	for _, s := range suites {
		for _, tests := range groups(c.reaching(s, m)) {
			if c.Seed != "" && time.Now().Add(taken(tests)).After(end) {
				result.Outcome = Undecided
				return result, nil
			}
			if result.Outcome == NotReached {
				result.Outcome = Survived
			}
			test, certain, err := c.kills(ctx, s.pkg, tests, m)
			if err != nil {
				return result, err
			}
			if test != "" {
				result.Outcome, result.Test = ByChance, s.pkg+" "+test
			}
			if certain {
				result.Outcome = Killed
				return result, nil
			}
		}
	}
	return result, nil
}

// kills runs tests on a mutant. If one fails, it runs that one again, and then all of them if it
// passes alone. In a sample a failure counts at once.
func (c *Campaign) kills(ctx context.Context, pkg string, run []*test, m *generate.Mutant) (by string, certain bool, err error) {
	first, err := c.run(ctx, pkg, run, m.ID, "", limit(run))
	if err != nil || !first.failed {
		return "", false, err
	}
	by = cmp.Or(first.test, "(start)")
	if first.timedOut {
		return by + " (timeout)", true, nil
	}
	if c.Seed != "" {
		return by, true, nil
	}
	again := [][]*test{run}
	if i := slices.IndexFunc(run, func(t *test) bool { return t.name == by }); i >= 0 && len(run) > 1 {
		again = [][]*test{run[i : i+1], run}
	}
	for _, tests := range again {
		second, err := c.run(ctx, pkg, tests, m.ID, "", limit(tests))
		if err != nil || second.failed {
			return by, err == nil, err
		}
	}
	return by, false, nil
}

// String is one line for people.
func (r Result) String() string {
	m := r.Mutant
	return fmt.Sprintf("%-11s %s %s: %s: %s -> %s (%d) %s", r.Outcome, m.File, m.Func, m.Operator, m.Before, m.After, m.Ordinal, r.Test)
}

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
	test             string // the first that failed, with its subtest, or the last that was running
	took             time.Duration
	output           string // the end of it
}

// run runs tests of a package one time on mutants, up to the first that fails. An error means that it could not.
func (c *Campaign) run(ctx context.Context, tests []*test, mutants []*Result, reached string, limit time.Duration) (verdict, error) {
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
	cmd := exec.CommandContext(bounded, "sh", "-c", fmt.Sprintf(`ulimit -v %d; unshare -m true 2>&- && exec unshare -m "$@"; exec "$@"`, memoryLimit), "sh", c.program(tests[0].pkg),
		"-test.run="+pattern(tests), "-test.v", "-test.count=1", "-test.failfast", "-test.timeout="+limit.String())
	cmd.Dir = filepath.Join(c.Root, tests[0].pkg)
	cmd.Env = append(os.Environ(), c.Env...)
	var chosen strings.Builder
	for _, r := range mutants {
		fmt.Fprintf(&chosen, " %d", r.Mutant.ID)
	}
	cmd.Env = append(cmd.Env, "TMPDIR="+temp, generate.Chosen+"="+chosen.String(), generate.Reached+"="+reached)
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
	return strings.Join(names, "|")
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

// These match lines that tell what a test does.
var (
	running  = regexp.MustCompile(`(?m)^\s*=== (?:RUN|CONT)\s+([^\s/]+)`)
	failed   = regexp.MustCompile(`(?m)^\s*--- FAIL:\s+(\S+)`)
	timedOut = regexp.MustCompile(`(?m)^\s*panic: test timed out after `)
)

// test returns the first test that failed, with its subtest, or else the last that ran.
func (t tail) test() string {
	var name []byte
	for _, m := range failed.FindAllSubmatch(t, -1) { // a test stands before its subtests
		if name != nil && !bytes.HasPrefix(m[1], append(name, '/')) {
			break
		}
		name = slices.Clip(m[1])
	}
	if name != nil {
		return string(name)
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
	Undecided  = "undecided"   // the time of a sample was over, or the program was stopped, before all tests had run
)

// Tests run on one mutant at a time until their times, each divided by kills + 1, add up to alone. The others run on
// at most batch mutants at once.
const (
	alone = 8 * time.Second
	batch = 40
)

// Result is what came of a mutant.
type Result struct {
	Mutant  *generate.Mutant
	Outcome string
	Test    string // what killed it, as in "./memory TestStore"

	rest []*test // reach it, and have not run
}

// try runs the fast tests that reach a mutant, until one fails twice.
func (c *Campaign) try(ctx context.Context, suites []*suite, m *generate.Mutant, end time.Time) (*Result, error) {
	r := &Result{Mutant: m, Outcome: NotReached}
	for _, s := range suites {
		tests, rest := c.reaching(s, m)
		r.rest = append(r.rest, rest...)
		for _, run := range groups(tests) {
			if c.Seed != "" && time.Now().Add(taken(run)).After(end) {
				r.Outcome = Undecided
				return r, nil
			}
			if r.Outcome == NotReached {
				r.Outcome = Survived
			}
			if err := c.kills(ctx, run, r); err != nil || r.Outcome == Killed {
				return r, err
			}
		}
	}
	return r, nil
}

// kills runs tests on a mutant. If one fails, it runs that one again, and then all of them if it
// passes alone. In a sample a failure counts at once.
func (c *Campaign) kills(ctx context.Context, run []*test, r *Result) error {
	mutant := []*Result{r}
	v, err := c.run(ctx, run, mutant, "", limit(run))
	if err != nil || !v.failed {
		return err
	}
	by, _, _ := strings.Cut(cmp.Or(v.test, "(start)"), "/")
	r.Outcome, r.Test = ByChance, run[0].pkg+" "+by
	if v.timedOut {
		r.Outcome, r.Test = Killed, r.Test+" (timeout)"
		return nil
	}
	again := [][]*test{run}
	if i := slices.IndexFunc(run, func(t *test) bool { return t.name == by }); i >= 0 && len(run) > 1 {
		again = [][]*test{run[i : i+1], run}
	}
	for _, tests := range again {
		if c.Seed == "" {
			v, err = c.run(ctx, tests, mutant, "", limit(tests))
		}
		if err != nil {
			return err
		}
		if v.failed {
			r.Outcome = Killed
			c.mu.Lock()
			c.found[r.Mutant.File+r.Test]++
			c.mu.Unlock()
			return nil
		}
	}
	return nil
}

// tryTogether runs the slow tests on several mutants at once: most of these survive.
func (c *Campaign) tryTogether(ctx context.Context, suites []*suite, some []*Result) error {
	for _, s := range suites {
		for _, t := range s.tests {
			reached := slices.DeleteFunc(alive(some), func(r *Result) bool { return !slices.Contains(r.rest, t) })
			if err := c.find(ctx, t, reached); err != nil {
				return err
			}
		}
	}
	return nil
}

// find finds the mutants of some that a test kills. If it fails on all of them, the subtest that failed runs on each
// half, and so on.
func (c *Campaign) find(ctx context.Context, whole *test, some []*Result) error {
	if len(some) == 0 {
		return nil
	}
	v, err := c.run(ctx, []*test{whole}, some, "", limit([]*test{whole}))
	if err != nil || !v.failed {
		return err
	}
	part := *whole
	part.run = "^" + strings.ReplaceAll(regexp.QuoteMeta(v.test), "/", "$/^") + "$"
	if v, err = c.run(ctx, []*test{&part}, nil, "", limit([]*test{&part})); err != nil {
		return err
	}
	if v.failed { // without a mutant: it needs the subtests before it
		part = *whole
	}
	for _, t := range []*test{&part, whole} {
		if err := c.split(ctx, t, some); err != nil {
			return err
		}
		if left := alive(some); len(left) < len(some) {
			return c.find(ctx, whole, left)
		}
	}
	return nil // none of them alone
}

func alive(all []*Result) []*Result {
	return slices.DeleteFunc(slices.Clone(all), func(r *Result) bool { return r.Outcome == Killed })
}

func (c *Campaign) split(ctx context.Context, t *test, some []*Result) error {
	run := []*test{t}
	if len(some) == 1 {
		return c.kills(ctx, run, some[0])
	}
	v, err := c.run(ctx, run, some, "", limit(run))
	if err != nil || !v.failed {
		return err
	}
	half := len(some) / 2
	if err := c.split(ctx, t, some[:half]); err != nil {
		return err
	}
	return c.split(ctx, t, some[half:])
}

// batches divides the mutants that live and have tests left. No two of a batch change the same text. If one makes the
// code of another unreachable, and survives, the other survives with it.
func batches(all []*Result) (some [][]*Result) {
	all = slices.DeleteFunc(alive(all), func(r *Result) bool { return len(r.rest) == 0 })
	slices.SortFunc(all, func(a, b *Result) int { return cmp.Compare(a.Mutant.ID, b.Mutant.ID) })
	for n, apart := (len(all)+batch-1)/batch, false; !apart; n++ {
		some, apart = make([][]*Result, n), true
		for i, r := range all {
			to := &some[i%n]
			apart = apart && !slices.ContainsFunc(*to, func(o *Result) bool { return o.Mutant.Overlaps(r.Mutant) })
			*to = append(*to, r)
		}
	}
	return some
}

// String is one line for people.
func (r Result) String() string {
	m := r.Mutant
	return fmt.Sprintf("%-11s %s %s: %s: %s -> %s (%d) %s", r.Outcome, m.File, m.Func, m.Operator, m.Before, m.After, m.Ordinal, r.Test)
}

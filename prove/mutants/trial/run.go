package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/sqlimit/limiter/prove/mutants/generate"
)

// memoryLimit is how much memory a test program may map, in kB. A mutant may never stop to allocate.
const memoryLimit = 12 << 20

// unwind is how much longer a program is waited for that does not stop itself.
const unwind = 5 * time.Second

// verdict is what came of one run of tests.
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
	v := verdict{took: time.Since(began), test: out.test(), output: string(out.tail)}
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

// pattern returns the expression for -run that matches tests by name.
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
	for _, c := range b {
		if c != '\n' {
			if len(w.line) < 1000 {
				w.line = append(w.line, c)
			}
			continue
		}
		w.read(string(w.line))
		w.line = w.line[:0]
	}
	w.tail = append(w.tail, b...)
	if len(w.tail) > 2*kept {
		w.tail = append([]byte(nil), w.tail[len(w.tail)-kept:]...)
	}
	return len(b), nil
}

func (w *watcher) read(line string) {
	line = strings.TrimSpace(line)
	if name, ok := strings.CutPrefix(line, "=== RUN   "); ok {
		w.running = top(name)
	} else if name, ok := strings.CutPrefix(line, "=== CONT  "); ok {
		w.running = top(name)
	} else if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok && w.failed == "" {
		w.failed = top(name)
	}
	w.timedOut = w.timedOut || strings.HasPrefix(line, "panic: test timed out after ")
}

// top returns the name of a test without its subtests.
func top(name string) string {
	name, _, _ = strings.Cut(name, " ")
	name, _, _ = strings.Cut(name, "/")
	return name
}

func (w *watcher) test() string {
	if w.failed != "" {
		return w.failed
	}
	return w.running
}

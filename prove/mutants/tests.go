package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// tests builds and runs the tests of one copy of the code.
type tests struct {
	root  string
	env   []string
	limit time.Duration // for one check
}

// unwind is how much longer a test program is waited for that does not stop itself.
const unwind = 10 * time.Second

// build makes the test program of a package in dir. What is not needed to run it once is left
// out: symbols, go vet, and to optimize the package itself. That is more than half of the time.
func (t tests) build(ctx context.Context, pkg, overlay, dir string) (program string, err error) {
	program = filepath.Join(dir, strings.ReplaceAll(pkg, "/", "-")+".test")
	args := []string{"test", "-c", "-vet=off", "-gcflags=-N -l", "-ldflags=-s -w", "-o", program}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	out, err := t.command(ctx, t.root, "go", append(args, pkg)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
	}
	return program, nil
}

// errFailed is what run returns if tests ran, and failed.
var errFailed = errors.New("the check failed")

// run runs the tests of a check, and returns what they said, and an error unless all of
// them passed.
func (t tests) run(ctx context.Context, program string, c Check) (said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.limit+unwind)
	defer cancel()
	args := append([]string{"-test.run=" + c.Run, "-test.v", "-test.count=1", "-test.timeout=" + t.limit.String()}, c.args()...)
	cmd := t.command(ctx, filepath.Join(t.root, c.Package), program, args...)
	out, err := cmd.CombinedOutput()
	said = string(out)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return said, ctx.Err()
	case errors.As(err, &exit):
		return said, errFailed
	case err != nil:
		return said, err
	case !strings.Contains(said, "--- PASS: "):
		return said, fmt.Errorf("%s runs no test", c.command())
	case strings.Contains(said, "--- SKIP: "):
		return said, fmt.Errorf("%s skips a test", c.command())
	}
	return said, nil
}

func (t tests) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), t.env...)
	// A process that a test left behind must not be waited for.
	cmd.WaitDelay = unwind
	return cmd
}

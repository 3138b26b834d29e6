package prove_test

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// child is a process that works until it is killed.
type child struct {
	cmd    *exec.Cmd
	stderr strings.Builder
	ended  sync.WaitGroup
	err    error
}

// startChild starts a process, and has listen read its output to the end. What a process wrote before it was
// killed is still in the pipe.
func startChild(t testing.TB, cmd *exec.Cmd, listen func(out io.Reader) error) *child {
	t.Helper()
	p := &child{cmd: cmd}
	cmd.Stderr = &p.stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must(t, err)
	p.ended.Go(func() { p.err = listen(out) })
	return p
}

// kill kills the process, and waits until all of its output was read.
func (p *child) kill(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Errorf("it had ended by itself: %v", err)
	}
	p.ended.Wait()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if p.err != nil || !errors.As(err, &exit) || exit.Exited() {
		t.Errorf("a process ended by itself: %v, %v\n%s", p.err, err, &p.stderr)
	}
}

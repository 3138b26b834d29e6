package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Self returns the command that runs this test binary again, with more environment variables. They
// tell its TestMain, or an init function, what to do instead of the tests. The process is killed
// when the test ends.
func Self(t testing.TB, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	Must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// StartTogether starts the processes and returns when all have begun. Each process calls [AwaitStart]
// when it is ready. collect reads the later output of process i; it may be nil. ended is closed when
// all processes have ended. If one of them fails, so does the test.
func StartTogether(t testing.TB, processes []*exec.Cmd, collect func(i int, out io.Reader) error) (ended <-chan struct{}) {
	t.Helper()
	ins, outs, errs := make([]io.Closer, len(processes)), make([]*bufio.Reader, len(processes)), make([]strings.Builder, len(processes))
	for i, cmd := range processes {
		cmd.Stderr = &errs[i]
		in, err := cmd.StdinPipe()
		Must(t, err)
		out, err := cmd.StdoutPipe()
		Must(t, err)
		Must(t, cmd.Start())
		ins[i], outs[i] = in, bufio.NewReader(out)
	}
	var ready, all sync.WaitGroup
	ready.Add(len(processes))
	for i, cmd := range processes {
		all.Go(func() {
			_, err := outs[i].ReadString('\n')
			ready.Done()
			ready.Wait()
			_ = ins[i].Close() // fails if the process has ended
			if err == nil && collect != nil {
				err = collect(i, outs[i])
			}
			// The end of the test kills processes that still run.
			if err := errors.Join(err, cmd.Wait()); err != nil && t.Context().Err() == nil {
				t.Errorf("process %d: %v\n%s", i, err, &errs[i])
			}
		})
	}
	over := make(chan struct{})
	go func() {
		all.Wait()
		close(over)
	}()
	t.Cleanup(func() { <-over })
	ready.Wait()
	return over
}

// AwaitStart says that a process of [StartTogether] is ready, and waits until all of them are.
func AwaitStart() error {
	if _, err := fmt.Fprintln(os.Stdout, "ready"); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

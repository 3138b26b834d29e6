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
// tell its TestMain, or an init function, what to do instead of the tests. The process ends with the
// test.
func Self(t testing.TB, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// StartTogether starts processes, each of which must call [AwaitStart] when it is ready, and returns
// when they all begin. collect reads what the i-th process prints from then on; nil reads nothing.
// ended is closed when all processes have ended. If one fails, so does the test.
func StartTogether(t testing.TB, processes []*exec.Cmd, collect func(i int, out io.Reader) error) (ended <-chan struct{}) {
	t.Helper()
	var ready, all sync.WaitGroup
	ready.Add(len(processes))
	for i, cmd := range processes {
		stderr := new(strings.Builder)
		cmd.Stderr = stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			out := bufio.NewReader(pipe)
			_, err := out.ReadString('\n')
			ready.Done()
			ready.Wait()
			_ = in.Close() // fails if the process has ended
			if err == nil && collect != nil {
				err = collect(i, out)
			}
			if err := errors.Join(err, cmd.Wait()); err != nil {
				t.Errorf("process %d: %v\n%s", i, err, stderr)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		all.Wait()
		close(over)
	}()
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

package prove_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
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

// startReporting starts a helper, and has note hear the events that it reports.
func startReporting[Event any](t testing.TB, name string, job any, note func(Event)) *child {
	t.Helper()
	return startChild(t, helper(t, name, job), func(out io.Reader) error {
		for in := json.NewDecoder(out); ; {
			var e Event
			if err := in.Decode(&e); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			note(e)
		}
	})
}

// reporter returns the function by which such a helper reports an event.
func reporter[Event any]() (note func(Event)) {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(e); err != nil { // the test has ended
			os.Exit(1)
		}
	}
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

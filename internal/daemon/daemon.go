// Package daemon runs PostgreSQL, PgBouncer and Pgpool-II of this machine on free ports of the loopback
// interface, until the caller stops them. Packages internal/dbtest, bench, prove and the tests of
// cmd/limiter call it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sqlimit/limiter/internal/testenv"
)

const (
	// stopTimeout is how long a daemon may take to stop before it is killed.
	stopTimeout = 10 * time.Second
	// readyTimeout bounds one attempt to reach a daemon. readyInterval is the pause between attempts.
	readyTimeout  = 5 * time.Second
	readyInterval = 20 * time.Millisecond
)

// Daemon is a server program in a temporary directory. If this process is root, the program runs as
// another user, because PostgreSQL and the poolers refuse to run as root. It is for one goroutine.
type Daemon struct {
	// Dir is the directory that the program may write to.
	Dir string
	// Env is added to this process's environment when the program starts.
	Env []string

	log     string           // file that the program writes to
	account *testenv.Account // nil: the account of this process
	quit    syscall.Signal
	process *os.Process // nil while it is down
	exited  chan struct{}
}

// New makes a directory for a program in parent; an empty parent is the system's directory for
// temporary files. The signal quit makes the program stop at once.
func New(parent, name string, quit syscall.Signal) (*Daemon, error) {
	account, err := testenv.Unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "limiter-"+name+"-")
	if err != nil {
		return nil, err
	}
	d := &Daemon{Dir: dir, account: account, quit: quit, log: filepath.Join(dir, "log")}
	if err := d.own(dir); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// own gives a file to the account that the program runs as.
func (d *Daemon) own(path string) error {
	if d.account == nil {
		return nil
	}
	return os.Chown(path, d.account.UID, d.account.GID)
}

// Write makes a file that only the program can read, and returns its path.
func (d *Daemon) Write(name, content string) (string, error) {
	path := filepath.Join(d.Dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return "", err
	}
	return path, d.own(path)
}

// Command is exec.CommandContext for the account and the directory of d.
func (d *Daemon) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = d.Dir
	cmd.SysProcAttr = testenv.Attributes(d.account, d.quit)
	return cmd
}

// Serve starts the program on a free port of 127.0.0.1 and waits until ready returns nil.
func (d *Daemon) Serve(ctx context.Context, program string, args func(port uint16) []string, ready func(ctx context.Context, port uint16) error) (uint16, error) {
	// Another process may take the port before the program does, but not three times in a row.
	for attempt := 1; ; attempt++ {
		port, err := testenv.FreePort()
		if err != nil {
			return 0, err
		}
		if err := d.Launch(program, args(port)...); err != nil {
			return 0, err
		}
		err = d.Await(ctx, func(ctx context.Context) error { return ready(ctx, port) })
		if err == nil {
			return port, nil
		}
		if !errors.Is(err, ErrExited) || attempt == 3 {
			output, _ := d.Log() // What there is of it explains the error.
			return 0, fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, output)
		}
	}
}

// Launch starts the program. It does not wait.
func (d *Daemon) Launch(program string, args ...string) error {
	output, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := d.Command(context.Background(), program, args...)
	cmd.Env = append(os.Environ(), d.Env...)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // How it ended is in its output.
	}()
	d.process, d.exited = cmd.Process, exited
	return nil
}

// ErrExited is the error of [Daemon.Await] if the program ends.
var ErrExited = errors.New("exited instead of answering")

// Await waits until ready returns nil, the program ends or ctx does.
func (d *Daemon) Await(ctx context.Context, ready func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, readyTimeout)
		err := ready(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(readyInterval):
		case <-d.exited:
			return errors.Join(ErrExited, err)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// Exited returns a channel that is closed when the program that was started last has ended.
func (d *Daemon) Exited() <-chan struct{} { return d.exited }

// Process returns the program's process. It is nil before Launch and after [Daemon.Kill]. The
// program may have ended by itself: see [Daemon.Exited].
func (d *Daemon) Process() *os.Process { return d.process }

// Log returns what the program has written.
func (d *Daemon) Log() ([]byte, error) { return os.ReadFile(d.log) }

// Kill ends the program, if it runs, by SIGKILL.
func (d *Daemon) Kill() {
	if d.process == nil {
		return
	}
	_ = d.process.Kill() // It may be gone already.
	<-d.exited
	d.process = nil
}

// Stop ends the program, if it runs, and removes the directory.
func (d *Daemon) Stop() error {
	if d.process != nil {
		_ = d.process.Signal(d.quit) // It may be gone already; on Windows there is only Kill.
		select {
		case <-d.exited:
		case <-time.After(stopTimeout):
		}
		d.Kill()
	}
	return os.RemoveAll(d.Dir)
}

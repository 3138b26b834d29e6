package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sqlimit/limiter/internal/host"
)

const (
	// stopTimeout is what a daemon gets between being asked to stop and being killed.
	stopTimeout = 10 * time.Second

	// readyTimeout bounds one look whether a daemon answers, readyInterval lies between two.
	readyTimeout  = 5 * time.Second
	readyInterval = 20 * time.Millisecond
)

// daemon is a server program of this machine in a temporary directory. If the tests run as root, it
// runs as another user, because PostgreSQL and PgBouncer refuse to run as root.
type daemon struct {
	dir     string
	log     string         // file that the program writes to
	account *host.Account  // nil: the account of the tests
	quit    syscall.Signal // makes the program stop at once
	process *os.Process
	exited  chan struct{}
}

func newDaemon(name string, quit syscall.Signal) (*daemon, error) {
	account, err := host.Unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "limiter-"+name+"-")
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir, account: account, quit: quit}
	if err := d.own(dir); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// own gives a file to the account that the program runs as.
func (d *daemon) own(path string) error {
	if d.account == nil {
		return nil
	}
	return os.Chown(path, d.account.UID, d.account.GID)
}

// write makes a file that only the program can read, and returns its path.
func (d *daemon) write(name, content string) (string, error) {
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return "", err
	}
	return path, d.own(path)
}

// command is exec.CommandContext for the account and directory of d.
func (d *daemon) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = d.dir
	cmd.SysProcAttr = host.Attributes(d.account, d.quit)
	return cmd
}

// serve starts the program and waits until ready returns nil. Both get the port, a free one of
// 127.0.0.1.
func (d *daemon) serve(ctx context.Context, program string, args func(port uint16) ([]string, error), ready func(ctx context.Context, port uint16) error) (uint16, error) {
	// Another process may take the port before the program does; three times in a row it will not.
	for attempt := 1; ; attempt++ {
		port, err := host.FreePort()
		if err != nil {
			return 0, err
		}
		arguments, err := args(port)
		if err != nil {
			return 0, err
		}
		d.log = filepath.Join(d.dir, fmt.Sprintf("log%d", attempt))
		err = d.launch(ctx, program, arguments)
		if err != nil {
			return 0, err
		}
		err = d.await(ctx, func(ctx context.Context) error { return ready(ctx, port) })
		if err == nil {
			return port, nil
		}
		if !errors.Is(err, errExited) || attempt == 3 {
			output, _ := os.ReadFile(d.log) // What there is of it explains the error.
			return 0, fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, output)
		}
	}
}

func (d *daemon) launch(ctx context.Context, program string, args []string) error {
	output, err := os.Create(d.log)
	if err != nil {
		return err
	}
	defer output.Close()
	// The program stays when the context of its start ends.
	cmd := d.command(context.WithoutCancel(ctx), program, args...)
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

var errExited = errors.New("exited instead of answering")

func (d *daemon) await(ctx context.Context, ready func(context.Context) error) error {
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
			return errors.Join(errExited, err)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// stop ends the program, if it runs, and removes the directory.
func (d *daemon) stop() error {
	if d.process != nil {
		_ = d.process.Signal(d.quit) // It may be gone already; on Windows there is only Kill.
		select {
		case <-d.exited:
		case <-time.After(stopTimeout):
			_ = d.process.Kill()
			<-d.exited
		}
	}
	return os.RemoveAll(d.dir)
}

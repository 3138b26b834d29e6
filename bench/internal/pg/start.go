// Package pg starts a PostgreSQL, and keeps what a benchmark needs in a database.
package pg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sqlimit/limiter/bench/internal/machine"
)

const (
	// startTimeout is how long a server may take until it answers.
	startTimeout = 30 * time.Second
	// account is who PostgreSQL runs as if this is root, which it does not accept.
	account = "postgres"
)

// Start makes a cluster of the newest PostgreSQL on this host in dir, with its defaults: commits are
// durable. It returns the DSN, and what ends the server. As root dir must be open to all: the server
// runs as postgres.
func Start(ctx context.Context, dir string) (dsn string, stop func() error, err error) {
	programs, err := newestPrograms()
	if err != nil {
		return "", nil, err
	}
	home := filepath.Join(dir, "postgres")
	if err := makeHome(home); err != nil {
		return "", nil, err
	}
	data, log := filepath.Join(home, "data"), filepath.Join(home, "log")
	initdb := []string{filepath.Join(programs, "initdb"), "--pgdata=" + data, "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"}
	if err := runAs(ctx, home, initdb...); err != nil {
		return "", nil, err
	}
	port, err := machine.FreePort(ctx)
	if err != nil {
		return "", nil, err
	}
	// The socket is for nobody: with trust, who reaches it is let in, and so is who reaches the port.
	options := fmt.Sprintf("-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories=''", port)
	ctl := filepath.Join(programs, "pg_ctl")
	if err := runAs(ctx, home, ctl, "--pgdata="+data, "--log="+log, "--options="+options, "--wait", "start"); err != nil {
		return "", nil, err
	}
	stop = func() error {
		return runAs(context.Background(), home, ctl, "--pgdata="+data, "--mode=immediate", "--wait", "stop")
	}
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port), stop, nil
}

// newestPrograms returns the directory with the programs of the newest PostgreSQL: Debian keeps
// them out of PATH.
func newestPrograms() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		version := func(path string) int {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 for what is no version
			return n
		}
		newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
		return filepath.Dir(newest), nil
	}
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		return "", fmt.Errorf("no PostgreSQL on this host; install postgresql, or pass -postgres: %w", err)
	}
	return filepath.Dir(initdb), nil
}

// makeHome makes a directory that PostgreSQL can write to.
func makeHome(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil || os.Getuid() != 0 {
		return err
	}
	as, err := user.Lookup(account)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(as.Uid)
	if err != nil {
		return err
	}
	return os.Chown(dir, uid, -1)
}

// runAs runs a program in dir, as somebody else if this is root.
func runAs(ctx context.Context, dir string, command ...string) error {
	if os.Getuid() == 0 {
		command = append([]string{"runuser", "-u", account, "--"}, command...)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	// What pg_ctl leaves running must not hold a pipe open that Wait waits for.
	output, err := os.CreateTemp(dir, "output")
	if err != nil {
		return err
	}
	defer os.Remove(output.Name())
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(output.Name()) // what there is of it explains the error
		return fmt.Errorf("%v: %w\n%s", command, err, said)
	}
	return nil
}

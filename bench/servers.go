package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

const (
	// startTimeout is how long a server may take until it answers.
	startTimeout = 30 * time.Second
	// account is who PostgreSQL runs as if this is root, which it does not accept.
	account = "postgres"
)

// startPostgres makes a cluster of the newest PostgreSQL on this host, with its defaults: commits are
// durable. It returns the DSN.
func (b *backends) startPostgres(ctx context.Context) (dsn string, err error) {
	programs, err := postgresPrograms()
	if err != nil {
		return "", err
	}
	home := filepath.Join(b.dir, "postgres")
	if err := makeHome(home); err != nil {
		return "", err
	}
	data, log := filepath.Join(home, "data"), filepath.Join(home, "log")
	initdb := []string{filepath.Join(programs, "initdb"), "--pgdata=" + data, "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"}
	if err := runAs(ctx, home, initdb...); err != nil {
		return "", err
	}
	port, err := freePort(ctx)
	if err != nil {
		return "", err
	}
	// The socket is for nobody: with trust, who reaches it is let in, and so is who reaches the port.
	options := fmt.Sprintf("-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories=''", port)
	ctl := filepath.Join(programs, "pg_ctl")
	if err := runAs(ctx, home, ctl, "--pgdata="+data, "--log="+log, "--options="+options, "--wait", "start"); err != nil {
		return "", err
	}
	b.atClose(func() error {
		return runAs(context.Background(), home, ctl, "--pgdata="+data, "--mode=immediate", "--wait", "stop")
	})
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port), nil
}

// postgresPrograms returns the directory with the programs of the newest PostgreSQL: Debian keeps
// them out of PATH.
func postgresPrograms() (string, error) {
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

// startRedis starts a server that keeps nothing on disk, and returns its address.
func (b *backends) startRedis(ctx context.Context) (addr string, err error) {
	port, err := freePort(ctx)
	if err != nil {
		return "", err
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	// It is stopped by its end, also if ctx has ended before.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "redis-server",
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--dir", b.dir)
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("no Redis on this host; install redis-server, or pass -redis: %w", err)
	}
	b.atClose(func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait()                         // it was killed
		if errors.Is(err, os.ErrProcessDone) { // by the signal that this process got
			return nil
		}
		return err
	})
	return addr, listening(ctx, addr)
}

// listening waits until somebody listens on addr.
func listening(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// freePort returns a port of the loopback interface that nobody listens on.
func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

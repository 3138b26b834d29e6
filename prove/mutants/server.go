package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/sqlimit/limiter/internal/host"
)

// dsnVariable is where the tests look for a server, see package internal/dbtest.
const dsnVariable = "LIMITER_TEST_POSTGRES_DSN"

// startTimeout is how long a server may take to be made and to start.
const startTimeout = time.Minute

// server starts a PostgreSQL of this host for all checks, which else would start one each,
// unless the environment names one. It returns what to add to the environment of the
// checks. Data and all are in dir, which its user must be able to pass through.
func server(ctx context.Context, dir string) (env []string, stop func(), err error) {
	if os.Getenv(dsnVariable) != "" {
		return nil, func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c, err := newCluster(ctx, filepath.Join(dir, "postgres"))
	if err != nil {
		return nil, nil, err
	}
	if stop, err = c.start(ctx); err != nil {
		return nil, nil, err
	}
	return []string{dsnVariable + "=" + c.dsn()}, stop, nil
}

// cluster is a PostgreSQL server and its data.
type cluster struct {
	programs, home string
	as             *host.Account // who it runs as; nil is who this is
	password       string
	port           uint16
}

// newCluster makes the data of a cluster in a new directory.
func newCluster(ctx context.Context, home string) (c *cluster, err error) {
	c = &cluster{home: home, password: rand.Text()}
	if c.programs, _, err = host.PostgreSQL(ctx); err != nil {
		return nil, err
	}
	if c.as, err = host.Unprivileged(); err != nil {
		return nil, err
	}
	if c.port, err = host.FreePort(); err != nil {
		return nil, err
	}
	secret := filepath.Join(home, "password")
	if err := errors.Join(os.Mkdir(home, 0o700), os.WriteFile(secret, []byte(c.password), 0o600)); err != nil {
		return nil, err
	}
	if c.as != nil {
		if err := errors.Join(os.Chown(home, c.as.UID, c.as.GID), os.Chown(secret, c.as.UID, c.as.GID)); err != nil {
			return nil, err
		}
	}
	initdb := c.command(ctx, "initdb", "--pgdata="+c.data(), "--username=postgres", "--pwfile="+secret,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return c, nil
}

func (c *cluster) data() string { return filepath.Join(c.home, "data") }

func (c *cluster) dsn() string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", c.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(int(c.port))), Path: "/postgres", RawQuery: "sslmode=disable",
	}
	return u.String()
}

// command is a program of PostgreSQL, run by who may. If this program is killed it goes, too.
func (c *cluster) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.programs, program), args...)
	cmd.Dir = c.home
	cmd.SysProcAttr = host.Attributes(c.as, syscall.SIGQUIT)
	return cmd
}

// start starts the server, waits until it lets clients in, and returns what ends it.
func (c *cluster) start(ctx context.Context) (stop func(), err error) {
	// It is not to end with ctx, which only its start is bounded by.
	postgres := c.command(context.WithoutCancel(ctx), "postgres", "-D", c.data(), "-p", strconv.Itoa(int(c.port)),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=400",
		"-c", "fsync=off", "-c", "full_page_writes=off")
	log, err := os.Create(filepath.Join(c.home, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	postgres.Stdout, postgres.Stderr = log, log
	if err := postgres.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = postgres.Process.Signal(syscall.SIGQUIT) // at once: there is nothing to save
		_ = postgres.Wait()                          // it was killed, it will say
	}
	if err := c.ready(ctx); err != nil {
		stop()
		said, _ := os.ReadFile(log.Name()) // what there is of it explains the error
		return nil, fmt.Errorf("PostgreSQL does not start: %w\n%s", err, said)
	}
	return stop, nil
}

// ready waits until the server lets clients in.
func (c *cluster) ready(ctx context.Context) error {
	for {
		err := c.command(ctx, "pg_isready", "--quiet", "--host=127.0.0.1", "--port="+strconv.Itoa(int(c.port))).Run()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

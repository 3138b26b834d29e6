// Package cluster runs PostgreSQL clusters of a test's own, whose commits are durable, and
// does to them what befalls servers.
package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/testenv"
)

const (
	// startLimit is how long a server may take to start or to stop.
	startLimit = 60 * time.Second
	// interval is how often it is asked whether it has.
	interval = 20 * time.Millisecond
)

// Cluster is a PostgreSQL server and its data. It is for one goroutine, but for DSN.
type Cluster struct {
	t        testing.TB
	programs string
	dir      string // that the server may write to; its log is in it
	place    string // of the data, in dir if it is empty
	port     int
	settings []string
	env      []string

	process *exec.Cmd // nil while it is down
	exited  chan struct{}
}

// New makes a cluster and starts it. It listens on the loopback interface alone, and ends
// with the test. Settings are those of postgresql.conf: "work_mem=1MB".
func New(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	c := prepare(t, settings)
	c.fromTemplate()
	c.Start()
	return c
}

// init makes the data of a cluster.
func (c *Cluster) init(options ...string) {
	c.t.Helper()
	c.run("initdb", append([]string{
		"--pgdata=" + c.data(), "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync",
	}, options...)...)
}

// prepare returns a cluster without data.
func prepare(t testing.TB, settings []string) *Cluster {
	t.Helper()
	programs, _, err := testenv.PostgreSQL(t.Context())
	if err != nil {
		t.Fatalf("cluster: %v; install postgresql", err)
	}
	c := &Cluster{t: t, programs: programs, dir: newDir(t), port: freePort(t), settings: settings}
	t.Cleanup(func() {
		if log := c.Log(); t.Failed() {
			t.Logf("at the end of the server's log:\n%s", log[max(0, len(log)-8000):])
		}
		if err := c.remove(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *Cluster) data() string {
	if c.place != "" {
		return c.place
	}
	return filepath.Join(c.dir, "data")
}

// DSN is that of the superuser on the database postgres.
func (c *Cluster) DSN() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", c.port)
}

// Port is where the server listens.
func (c *Cluster) Port() int { return c.port }

// Start starts the server and waits until it lets somebody in.
func (c *Cluster) Start() {
	c.t.Helper()
	c.Launch()
	c.Await()
}

// Await waits until the server lets somebody in.
func (c *Cluster) Await() {
	c.t.Helper()
	c.until("accept a connection", func(err error) bool {
		if err != nil && c.Ended() {
			c.t.Fatalf("the server did not start:\n%s", c.Log())
		}
		return err == nil
	}, c.DSN())
}

// until connects until done accepts the outcome.
func (c *Cluster) until(what string, done func(err error) bool, dsn string) {
	c.t.Helper()
	for deadline := time.Now().Add(startLimit); ; time.Sleep(interval) {
		err := c.admits(dsn)
		if done(err) {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the server does not %s: %v\n%s", what, err, c.Log())
		}
	}
}

// Launch starts the server and does not wait.
func (c *Cluster) Launch() {
	c.t.Helper()
	if c.process != nil {
		c.t.Fatal("the server runs already")
	}
	// What a killed one left there is in the way of the next one if its number is another
	// process's by now.
	if err := os.Remove(filepath.Join(c.data(), "postmaster.pid")); err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	args := []string{
		"-D", c.data(), "-p", strconv.Itoa(c.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "max_connections=200", "-c", "dynamic_shared_memory_type=mmap", // in its directory, with which it goes
	}
	for _, s := range c.settings {
		args = append(args, "-c", s)
	}
	cmd := c.command(context.Background(), "postgres", args...)
	cmd.Env = append(os.Environ(), c.env...)
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how it ended is in its log
	}()
	c.process, c.exited = cmd, exited
}

// Stop lets the server write out what it has, and end. Sessions are cut off.
func (c *Cluster) Stop() { c.end(syscall.SIGINT) }

// Kill ends the server and all of its processes by SIGKILL, as a power cut does, but for
// what the operating system has not written to the disk yet.
func (c *Cluster) Kill() {
	if c.process == nil {
		return
	}
	if c.Ended() { // its number may be another process's by now
		c.process = nil
		return
	}
	pid := c.process.Process.Pid
	// Stopped first, so that it neither makes new processes nor cleans up after dead ones.
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	Stopped(pid)
	children := childrenOf(pid)
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL) // it may have gone by itself
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	<-c.exited
	for _, child := range children {
		c.gone(child)
	}
	c.process = nil
}

func (c *Cluster) end(signal syscall.Signal) {
	c.t.Helper()
	if c.process == nil {
		return
	}
	_ = c.process.Process.Signal(signal)
	select {
	case <-c.exited:
		c.process = nil
	case <-time.After(startLimit):
		c.t.Fatalf("the server does not stop:\n%s", c.Log())
	}
}

// Log returns what the server has logged.
func (c *Cluster) Log() string {
	text, err := os.ReadFile(c.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (c *Cluster) logFile() string { return filepath.Join(c.dir, "log") }

// admits is nil if the server lets somebody in.
func (c *Cluster) admits(dsn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// command is a program of PostgreSQL, run by who may.
func (c *Cluster) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.programs, program), args...)
	cmd.Dir = c.dir
	// If the test is killed its servers go with it.
	cmd.SysProcAttr = testenv.Attributes(account(c.t), syscall.SIGQUIT)
	return cmd
}

// run runs a program of PostgreSQL to its end.
func (c *Cluster) run(program string, args ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if out, err := c.command(ctx, program, args...).CombinedOutput(); err != nil {
		c.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

func freePort(t testing.TB) int {
	t.Helper()
	port, err := testenv.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return int(port)
}

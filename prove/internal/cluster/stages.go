package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// cannotConnectNow is the SQLSTATE of a server that starts, or ends.
	cannotConnectNow = "57P03"
	// invalidPassword is the SQLSTATE for a wrong password, and for none.
	invalidPassword = "28P01"
)

// Withhold restarts the server and keeps it in its start-up until Release is called. It refuses all
// connections.
func (c *Cluster) Withhold() {
	c.t.Helper()
	c.Stop()
	if err := os.WriteFile(filepath.Join(c.data(), "standby.signal"), nil, 0o644); err != nil {
		c.t.Fatal(err)
	}
	settings := c.settings
	c.settings = append(append([]string{}, settings...), "hot_standby=off")
	c.Launch()
	c.settings = settings
	c.awaitRefusal(c.DSN(), cannotConnectNow)
}

// Release ends the start-up of a withheld server.
func (c *Cluster) Release() {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.data(), "promote"), nil, 0o644); err != nil {
		c.t.Fatal(err)
	}
	_ = c.process.Process.Signal(syscall.SIGUSR1) // it looks for the file
	c.Await()
}

// Drain makes the server refuse connections, and stop when its last session ends.
func (c *Cluster) Drain() {
	c.t.Helper()
	_ = c.process.Process.Signal(syscall.SIGTERM)
	c.awaitRefusal(c.DSN(), cannotConnectNow)
}

// AwaitEnd waits until the server has ended.
func (c *Cluster) AwaitEnd() {
	c.t.Helper()
	select {
	case <-c.exited:
		c.process = nil
	case <-time.After(startLimit):
		c.t.Fatalf("the server does not end:\n%s", c.Log())
	}
}

// AskPassword makes the server ask a role for its password.
func (c *Cluster) AskPassword(role string) {
	c.t.Helper()
	path := filepath.Join(c.data(), "pg_hba.conf") // of which the first line that fits counts
	rules, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append([]byte("host all "+role+" all scram-sha-256\n"), rules...), 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	_ = c.process.Process.Signal(syscall.SIGHUP)
	c.awaitRefusal(strings.Replace(c.DSN(), "postgres@", role+"@", 1), invalidPassword)
}

// awaitRefusal waits until the server refuses a connection with a SQLSTATE.
func (c *Cluster) awaitRefusal(dsn, state string) {
	c.t.Helper()
	c.until("refuse", func(err error) bool {
		refusal, ok := errors.AsType[*pgconn.PgError](err)
		return ok && refusal.Code == state
	}, dsn)
}

// Freeze stops the server and all its processes by SIGSTOP. resume continues them.
func (c *Cluster) Freeze() (resume func()) {
	c.t.Helper()
	pid := c.process.Process.Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	Stopped(pid)
	children := childrenOf(pid)
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGSTOP) // it may have gone by itself
	}
	return func() {
		for _, child := range children {
			_ = syscall.Kill(child, syscall.SIGCONT)
		}
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

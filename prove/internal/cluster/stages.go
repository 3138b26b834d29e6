package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/internal/testenv"
)

const (
	cannotConnectNow = "57P03" // the SQLSTATE of a server that starts, or ends
	invalidPassword  = "28P01" // the SQLSTATE for a wrong password, and for none
)

// Withhold restarts the server. It is in its start-up and refuses all connections until Release is called.
func (c *Cluster) Withhold() {
	c.Stop()
	testenv.Must(c.t, os.WriteFile(filepath.Join(c.server.Data, "standby.signal"), nil, 0o644))
	settings := c.settings
	c.settings = append(append([]string{}, settings...), "hot_standby=off")
	c.launch()
	c.settings = settings
	c.awaitRefusal(c.DSN(), cannotConnectNow)
}

// Release ends the start-up of a withheld server.
func (c *Cluster) Release() {
	c.t.Helper()
	testenv.Must(c.t, os.WriteFile(filepath.Join(c.server.Data, "promote"), nil, 0o644))
	_ = c.server.Process().Signal(syscall.SIGUSR1) // it looks for the file
	c.Await()
}

// Drain makes the server refuse connections, and stop when its last session ends.
func (c *Cluster) Drain() {
	_ = c.server.Process().Signal(syscall.SIGTERM)
	c.awaitRefusal(c.DSN(), cannotConnectNow)
}

// AskPassword makes the server ask a role for its password.
func (c *Cluster) AskPassword(role string) {
	path := filepath.Join(c.server.Data, "pg_hba.conf") // of which the first line that fits counts
	rules, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append([]byte("host all "+role+" all scram-sha-256\n"), rules...), 0o600)
	}
	testenv.Must(c.t, err)
	_ = c.server.Process().Signal(syscall.SIGHUP)
	c.awaitRefusal(strings.Replace(c.DSN(), "postgres@", role+"@", 1), invalidPassword)
}

// awaitRefusal waits until the server refuses a connection with a SQLSTATE.
func (c *Cluster) awaitRefusal(dsn, state string) {
	c.await("refuse", func(ctx context.Context) error {
		err := daemon.Answers(ctx, dsn)
		if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && refusal.Code == state {
			return nil
		}
		if err == nil {
			err = errors.New("the server lets the client in")
		}
		return fmt.Errorf("not SQLSTATE %s: %w", state, err)
	})
}

// Freeze stops the server and all its processes by SIGSTOP. resume continues them.
func (c *Cluster) Freeze() (resume func()) {
	c.t.Helper()
	pid, children := c.server.Process().Pid, c.signal(syscall.SIGSTOP)
	return func() {
		for _, process := range append(children, pid) {
			_ = syscall.Kill(process, syscall.SIGCONT)
		}
	}
}

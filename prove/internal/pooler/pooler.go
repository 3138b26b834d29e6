// Package pooler runs a PgBouncer of a test's own in front of a server of this host.
package pooler

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/host"
)

const (
	// patience is how long it may take to start.
	patience = 30 * time.Second
	// interval is how often it is asked whether it has.
	interval = 10 * time.Millisecond
)

// Pooler is a PgBouncer that pools transactions. It is for one goroutine, but for DSN.
type Pooler struct {
	t       testing.TB
	dir     string
	port    int
	account *host.Account
	process *exec.Cmd // nil while it is down
	exited  chan struct{}
}

// New starts a PgBouncer that passes everything on to a port of this host, in the name of
// the superuser. Settings are those of pgbouncer.ini: "default_pool_size = 2". It ends
// with the test.
func New(t testing.TB, upstream int, settings ...string) *Pooler {
	t.Helper()
	dir, err := os.MkdirTemp("", "prove") //nolint:usetesting // that one only this account can enter
	if err != nil {
		t.Fatal(err)
	}
	p := &Pooler{t: t, dir: dir}
	t.Cleanup(func() {
		p.Kill()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if p.account, err = host.Unprivileged(); err != nil {
		t.Fatal(err)
	}
	port, err := host.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	p.port = int(port)
	if p.account != nil {
		if err := os.Chown(dir, p.account.UID, p.account.GID); err != nil {
			t.Fatal(err)
		}
	}
	ini := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
%s
`, upstream, p.port, strings.Join(settings, "\n"))
	if err := os.WriteFile(p.ini(), []byte(ini), 0o644); err != nil {
		t.Fatal(err)
	}
	p.Start()
	return p
}

func (p *Pooler) ini() string { return filepath.Join(p.dir, "pgbouncer.ini") }

// Port is where it listens.
func (p *Pooler) Port() int { return p.port }

// DSN is that of the superuser on the database postgres behind it.
func (p *Pooler) DSN() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", p.port)
}

// Start starts it and waits until it lets somebody in.
func (p *Pooler) Start() {
	p.t.Helper()
	cmd := exec.CommandContext(context.Background(), "/usr/sbin/pgbouncer", "--quiet", p.ini())
	cmd.Dir = p.dir
	cmd.SysProcAttr = host.Attributes(p.account, syscall.SIGKILL)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("pgbouncer: %v; install it", err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how it ended is in its log
	}()
	p.process, p.exited = cmd, exited
	deadline := time.Now().Add(patience)
	for {
		err := p.answers()
		if err == nil {
			return
		}
		select {
		case <-exited:
			p.t.Fatalf("pgbouncer did not start:\n%s", log.String())
		case <-time.After(interval):
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("pgbouncer does not let anybody in: %v", err)
		}
	}
}

// Kill ends it by SIGKILL.
func (p *Pooler) Kill() {
	if p.process == nil {
		return
	}
	_ = p.process.Process.Kill() // it may have gone by itself
	<-p.exited
	p.process = nil
}

// answers asks for nothing that it needs a server for.
func (p *Pooler) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	config, err := pgx.ParseConfig(p.DSN())
	if err != nil {
		return err
	}
	config.Database = "pgbouncer" // its own
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

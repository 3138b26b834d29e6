// Package cluster runs PostgreSQL clusters with durable commits, and does to them what befalls servers.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/internal/testenv"
)

// startLimit is how long a server may take to start or to stop.
const startLimit = 60 * time.Second

// Cluster is a PostgreSQL server and its data. It is for one goroutine, but for DSN.
type Cluster struct {
	t        testing.TB
	server   *daemon.Postgres
	port     uint16
	settings []string
}

// New starts a cluster that ends with the test. Settings are those of postgresql.conf: "work_mem=1MB".
func New(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	c := prepare(t, settings)
	c.init()
	c.Start()
	return c
}

func (c *Cluster) init(options ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	testenv.Must(c.t, c.server.Init(ctx, append(options, "--auth=trust", "--locale=C.UTF-8")...))
}

// prepare returns a cluster without data.
func prepare(t testing.TB, settings []string) *Cluster {
	port, err := testenv.FreePort()
	testenv.Must(t, err)
	server, err := daemon.NewPostgres(t.Context(), "")
	if err != nil {
		t.Fatalf("cluster: %v", err)
	}
	c := &Cluster{t: t, server: server, port: port, settings: settings}
	t.Cleanup(func() {
		if log := c.Log(); t.Failed() {
			t.Logf("at the end of the server's log:\n%s", log[max(0, len(log)-8000):])
		}
		testenv.Equal(t, c.remove(), nil, "remove the cluster")
	})
	return c
}

// DSN is that of the superuser on the database postgres.
func (c *Cluster) DSN() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", c.port)
}

// Port is where the server listens.
func (c *Cluster) Port() int { return int(c.port) }

// Start starts the server and waits until it lets somebody in.
func (c *Cluster) Start() {
	c.t.Helper()
	c.launch()
	c.Await()
}

// Await waits until the server lets somebody in.
func (c *Cluster) Await() {
	c.t.Helper()
	c.await("start", c.admits)
}

// await waits until the server does something: until ready returns nil.
func (c *Cluster) await(does string, ready func(context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := c.server.Await(ctx, ready); err != nil {
		c.t.Fatalf("the server does not %s: %v\n%s", does, err, c.Log())
	}
}

// launch starts the server and does not wait.
func (c *Cluster) launch() {
	if c.server.Process() != nil {
		c.t.Fatal("the server runs already")
	}
	// A killed server leaves this file. The next one does not start if the PID in it is that of another process.
	if err := os.Remove(filepath.Join(c.server.Data, "postmaster.pid")); err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	// mmap keeps shared memory in the data directory, and it is removed with that.
	settings := []string{"max_connections=200", "dynamic_shared_memory_type=mmap"}
	testenv.Must(c.t, c.server.LaunchOn(c.port, append(settings, c.settings...)...))
}

// Stop lets the server write out what it has, and end. Sessions are cut off.
func (c *Cluster) Stop() {
	c.t.Helper()
	if c.server.Process() != nil {
		_ = c.server.Process().Signal(syscall.SIGINT)
		c.AwaitEnd()
	}
}

// AwaitEnd waits until the server has ended.
func (c *Cluster) AwaitEnd() {
	c.t.Helper()
	select {
	case <-c.server.Exited():
		c.server.Kill()
	case <-time.After(startLimit):
		c.t.Fatalf("the server does not end:\n%s", c.Log())
	}
}

// Kill ends the server and all of its processes by SIGKILL. The operating system still writes to the disk.
func (c *Cluster) Kill() {
	if c.server.Process() == nil {
		return
	}
	var children []int
	select {
	case <-c.server.Exited(): // the PID may belong to another process
	default:
		children = c.signal(syscall.SIGKILL)
	}
	c.server.Kill()
	for _, child := range children {
		if !awaitState(child, "Z") {
			c.t.Fatalf("process %d does not end", child)
		}
	}
}

// Log returns what the server has logged.
func (c *Cluster) Log() string {
	text, err := c.server.Log()
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// admits returns an error unless the superuser can run a query.
func (c *Cluster) admits(ctx context.Context) error { return daemon.Answers(ctx, c.DSN()) }

// Discard kills the server and removes what it has, before the test ends.
func (c *Cluster) Discard() {
	c.t.Helper()
	testenv.Must(c.t, c.remove())
}

func (c *Cluster) remove() error {
	c.Kill()
	c.removeSharedMemory()
	return errors.Join(os.RemoveAll(c.server.Data), c.server.Stop())
}

// removeSharedMemory removes the segment of a killed server. A system has room for some thousand.
func (c *Cluster) removeSharedMemory() {
	text, err := os.ReadFile(filepath.Join(c.server.Data, "postmaster.pid"))
	if err != nil {
		return // it was stopped in an orderly way
	}
	const line = 6 // "key id"
	var key, id int
	if lines := bytes.Split(text, []byte("\n")); len(lines) > line && testenv.ErrorOf(fmt.Sscan(string(lines[line]), &key, &id)) == nil {
		_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) // it may be gone already
	}
}

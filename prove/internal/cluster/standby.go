package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sqlimit/limiter/internal/testenv"
)

// Standby starts a standby with the settings of this server. The standby reaches this server by the port.
func (c *Cluster) Standby(port int) *Cluster {
	c.t.Helper()
	s := c.standby(port)
	s.Start()
	return s
}

// StandbyWithClock is [Cluster.Standby] with a clock of its own, so much ahead of this machine's.
func (c *Cluster) StandbyWithClock(port int, ahead time.Duration) (*Cluster, *Clock) {
	c.t.Helper()
	s := c.standby(port)
	clock := s.withClock(ahead)
	s.Start()
	return s, clock
}

// standby makes a standby that has not started.
func (c *Cluster) standby(port int) *Cluster {
	s := prepare(c.t, slices.Clone(c.settings))
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	testenv.Must(c.t, s.server.Run(ctx, "pg_basebackup", "--pgdata="+s.server.Data, "--host=127.0.0.1", "--port="+strconv.Itoa(c.Port()),
		"--username=postgres", "--checkpoint=fast", "--wal-method=stream", "--no-sync"))
	s.settings = append(s.settings, fmt.Sprintf("primary_conninfo=host=127.0.0.1 port=%d user=postgres application_name=standby", port))
	testenv.Must(c.t, os.WriteFile(filepath.Join(s.server.Data, "standby.signal"), nil, 0o644))
	return s
}

// Promote makes a standby a primary, and waits until it is.
func (c *Cluster) Promote() {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	testenv.Must(c.t, c.server.Run(ctx, "pg_ctl", "promote", "--wait", "--pgdata="+c.server.Data))
}

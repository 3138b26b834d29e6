package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/internal/testenv"
)

// Disk is a file system of its own, in memory, that can be filled up.
type Disk struct {
	t   testing.TB
	dir string
}

// NewDisk makes a Disk of so many megabytes, which goes with the test. Only root can.
func NewDisk(t testing.TB, megabytes int) *Disk {
	dir, err := os.MkdirTemp("", "prove") //nolint:usetesting // t.TempDir is closed to others, as whom the server runs
	testenv.Must(t, err)
	options := fmt.Sprintf("size=%dm,mode=0755", megabytes)
	as, err := testenv.Unprivileged()
	testenv.Must(t, err)
	if as != nil {
		options += fmt.Sprintf(",uid=%d,gid=%d", as.UID, as.GID)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		_ = os.Remove(dir)
		testenv.Unavailable(t, "tmpfs", fmt.Errorf("mount: %w", err))
	}
	t.Cleanup(func() { // after that of the server on it, which is made later
		testenv.Equal(t, errors.Join(syscall.Unmount(dir, 0), os.Remove(dir)), nil, "unmount", dir)
	})
	return &Disk{t, dir}
}

func (d *Disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// Fill leaves no room on the disk.
func (d *Disk) Fill() {
	file, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	testenv.Must(d.t, err)
	defer file.Close()
	// One page at a time, so that the last page is also filled.
	for page := make([]byte, 4096); err == nil; {
		_, err = file.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatal(err)
	}
}

// Free makes room again.
func (d *Disk) Free() {
	d.t.Helper()
	testenv.Must(d.t, os.Remove(d.ballast()))
}

// NewOn makes a cluster whose data is on a disk, but for its log of changes, and starts it.
func NewOn(t testing.TB, disk *Disk, settings ...string) *Cluster {
	t.Helper()
	c := prepare(t, settings)
	c.server.Data = filepath.Join(disk.dir, "data")
	c.init("--waldir=" + filepath.Join(c.server.Dir, "wal"))
	c.Start()
	return c
}

// NewWithLogOn starts a cluster whose log of changes is on a disk, in files of 1 MB.
func NewWithLogOn(t testing.TB, disk *Disk, settings ...string) *Cluster {
	c := prepare(t, append([]string{"min_wal_size=2MB", "max_wal_size=8MB"}, settings...))
	c.init("--waldir="+filepath.Join(disk.dir, "wal"), "--wal-segsize=1")
	c.Start()
	return c
}

// Revive waits until the server accepts a connection, and restarts one that ended because its disk was full.
func (c *Cluster) Revive() {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	err := c.server.Await(ctx, c.admits)
	for ctx.Err() == nil && errors.Is(err, daemon.ErrExited) {
		c.server.Kill()
		c.launch()
		err = c.server.Await(ctx, c.admits)
	}
	if err != nil {
		c.t.Fatalf("the server does not come up again: %v\n%s", err, c.Log())
	}
}

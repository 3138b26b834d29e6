package cluster

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Discard kills the server and removes what it has, before the test ends.
func (c *Cluster) Discard() {
	c.t.Helper()
	if err := c.remove(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *Cluster) remove() error {
	c.Kill()
	c.removeSharedMemory()
	return errors.Join(os.RemoveAll(c.server.Data), c.server.Stop())
}

// removeSharedMemory removes the segment by which PostgreSQL tells whether another server
// is at work in the same directory. One that was killed leaves it behind, and a system
// has room for some thousand.
func (c *Cluster) removeSharedMemory() {
	text, err := os.ReadFile(filepath.Join(c.server.Data, "postmaster.pid"))
	if err != nil {
		return // it was stopped in an orderly way
	}
	const line = 6 // "key id"
	lines := bytes.Split(text, []byte("\n"))
	if len(lines) <= line {
		return
	}
	if key := bytes.Fields(lines[line]); len(key) == 2 {
		if id, err := strconv.Atoi(string(key[1])); err == nil {
			const remove = 0 // IPC_RMID
			_, _, _ = syscall.Syscall(syscall.SYS_SHMCTL, uintptr(id), remove, 0)
		}
	}
}

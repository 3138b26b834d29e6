package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// childrenOf returns the processes that a process has made and that still run.
func childrenOf(pid int) []int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	var children []int
	for _, path := range stats {
		if parent, state := statOf(path); parent == pid && state != 'Z' {
			if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// statOf reads parent and state of a process; they are 0 if it has gone.
func statOf(path string) (parent int, state byte) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0
	}
	// "12 (a name, with anything in it) S 1 ..."
	_, rest, found := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
	fields := bytes.Fields(rest)
	if !found || len(fields) < 2 {
		return 0, 0
	}
	parent, err = strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0, 0
	}
	return parent, fields[0][0]
}

// awaitState waits until a process is in one of the states, of which 0 is that it has gone. It reports whether
// that took at most startLimit.
func awaitState(pid int, states ...byte) bool {
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); {
		if _, state := statOf(fmt.Sprintf("/proc/%d/stat", pid)); slices.Contains(states, state) {
			return true
		}
		time.Sleep(100 * time.Microsecond) // nothing tells the state of a process that is not a child
	}
	return false
}

// signal stops the server, so that it neither makes new processes nor cleans up after dead ones. It sends a
// signal to its processes, and returns them.
func (c *Cluster) signal(s syscall.Signal) (children []int) {
	pid := c.server.Process().Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	awaitState(pid, 'T', 'Z', 0)
	children = childrenOf(pid)
	for _, child := range children {
		_ = syscall.Kill(child, s) // it may have gone by itself
	}
	return children
}

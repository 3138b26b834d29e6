package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

// stopped waits until a process that was sent a SIGSTOP stands still: until then it can
// make another.
func stopped(pid int) {
	deadline := time.Now().Add(startLimit)
	for time.Now().Before(deadline) {
		switch _, state := statOf(fmt.Sprintf("/proc/%d/stat", pid)); state {
		case 'T', 'Z', 0:
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// gone waits until a process has ended. Its parent, which would say so, is dead.
func (c *Cluster) gone(pid int) {
	c.t.Helper()
	deadline := time.Now().Add(startLimit)
	for {
		if _, state := statOf(fmt.Sprintf("/proc/%d/stat", pid)); state == 0 || state == 'Z' {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("process %d does not end", pid)
		}
		time.Sleep(time.Millisecond) // nothing tells when a process ends that is not a child
	}
}

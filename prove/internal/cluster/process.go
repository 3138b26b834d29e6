package cluster

import (
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/sqlimit/limiter/internal/testenv"
)

// awaitState reports whether a process is gone or in one of the states within startLimit.
func awaitState(pid int, states ...string) bool {
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return true
		}
		if stat, err := process.Stat(); err != nil || slices.Contains(states, stat.State) {
			return true
		}
		time.Sleep(100 * time.Microsecond) // nothing tells the state of a process that is not a child
	}
	return false
}

// signal stops the server, so that it neither makes new processes nor cleans up after dead ones. It sends a
// signal to its processes, and returns those that still ran.
func (c *Cluster) signal(s syscall.Signal) (children []int) {
	pid := c.server.Process().Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	awaitState(pid, "T", "Z")
	all, err := procfs.AllProcs()
	testenv.Must(c.t, err)
	for _, process := range all {
		if stat, err := process.Stat(); err == nil && stat.PPID == pid && stat.State != "Z" {
			children = append(children, process.PID)
			_ = syscall.Kill(process.PID, s) // it may have gone by itself
		}
	}
	return children
}

package cluster

import (
	_ "embed" // the library's source
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sqlimit/limiter/internal/testenv"
)

// preload is the library that moves the clock of a server. libfaketime opens a file and allocates
// memory whenever a program reads the time. PostgreSQL reads it in signal handlers, so every few
// hundred steps a session crashed on a corrupt heap.
//
//go:embed preload/clock.c
var preload string

// Clock is that of a server, and can be set while the server runs. It is for one goroutine.
type Clock struct {
	ahead *atomic.Int64 // in memory that the server's processes read, in nanoseconds
}

// NewWithClock is [New] with a clock that can be set. It needs a C compiler.
func NewWithClock(t testing.TB, settings ...string) (*Cluster, *Clock) {
	t.Helper()
	c := prepare(t, settings)
	clock := c.withClock(0)
	c.init()
	c.Start()
	return c, clock
}

// withClock gives a cluster that has not started a clock so much ahead of this machine's.
func (c *Cluster) withClock(ahead time.Duration) *Clock {
	library, file := filepath.Join(c.server.Dir, "clock.so"), filepath.Join(c.server.Dir, "clock")
	source := library + ".c"
	testenv.Must(c.t, os.WriteFile(source, []byte(preload), 0o644))
	compiler, err := exec.LookPath("cc")
	if err != nil {
		testenv.Unavailable(c.t, "cc", err)
	}
	if out, err := exec.CommandContext(c.t.Context(), compiler, "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		c.t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	clock := &Clock{ahead: shared(c.t, file)}
	clock.Set(ahead)
	c.server.Env = []string{"LD_PRELOAD=" + library, "LIMITER_CLOCK=" + file}
	return clock
}

// shared makes a file of one number, and maps it.
func shared(t testing.TB, name string) *atomic.Int64 {
	var number atomic.Int64
	testenv.Must(t, os.WriteFile(name, make([]byte, unsafe.Sizeof(number)), 0o644))
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	testenv.Must(t, err)
	defer file.Close()
	memory, err := unix.Mmap(int(file.Fd()), 0, int(unsafe.Sizeof(number)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	testenv.Must(t, err)
	t.Cleanup(func() {
		testenv.Equal(t, unix.Munmap(memory), nil, "unmap the clock")
	})
	return (*atomic.Int64)(unsafe.Pointer(&memory[0]))
}

// Set makes the clock so much ahead of this machine's.
func (k *Clock) Set(ahead time.Duration) { k.ahead.Store(int64(ahead)) }

// Ahead is how much the clock is ahead of this machine's.
func (k *Clock) Ahead() time.Duration { return time.Duration(k.ahead.Load()) }

// Now is what the clock says, in the whole microseconds that PostgreSQL reads.
func (k *Clock) Now() time.Time { return time.Now().Round(0).Add(k.Ahead()).Truncate(time.Microsecond) }

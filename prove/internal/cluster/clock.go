package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Clock is that of a server, which can be set to other times while it runs. It goes as
// fast as that of this machine. It is for one goroutine.
type Clock struct {
	t     testing.TB
	file  string
	ahead time.Duration
}

// FakeTime is the library that moves a program's clock, or an error where it is not.
func FakeTime() (string, error) {
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("no libfaketimeMT.so.1 in /usr/lib; install libfaketime")
}

// NewWithClock is [New] with a clock that can be set. Its library is that of [FakeTime].
func NewWithClock(t testing.TB, library string, settings ...string) (*Cluster, *Clock) {
	t.Helper()
	c := prepare(t, settings)
	clock := c.withClock(library, 0)
	c.fromTemplate()
	c.Start()
	return c, clock
}

// withClock gives a cluster that has not started a clock so much ahead of this machine's.
func (c *Cluster) withClock(library string, ahead time.Duration) *Clock {
	c.t.Helper()
	clock := &Clock{t: c.t, file: filepath.Join(c.dir, "clock")}
	clock.Set(ahead)
	c.env = []string{
		"LD_PRELOAD=" + library, "FAKETIME_TIMESTAMP_FILE=" + clock.file,
		"FAKETIME_NO_CACHE=1",            // each reading looks into the file
		"FAKETIME_DONT_FAKE_MONOTONIC=1", // as a machine's monotonic clock goes on when the other is set
	}
	return clock
}

// Set makes the clock so much ahead of this machine's.
func (k *Clock) Set(ahead time.Duration) {
	k.t.Helper()
	// In place of the one before as a whole: a reader finds one or the other.
	next := k.file + ".next"
	if err := os.WriteFile(next, []byte(fmt.Sprintf("%+.9f\n", ahead.Seconds())), 0o644); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Rename(next, k.file); err != nil {
		k.t.Fatal(err)
	}
	k.ahead = ahead
}

// Ahead is how much the clock is ahead of this machine's.
func (k *Clock) Ahead() time.Duration { return k.ahead }

// Now is no later than what the clock says, and earlier by microseconds at most: the
// library computes with floating-point numbers.
func (k *Clock) Now() time.Time {
	return time.Now().Add(k.ahead - 20*time.Microsecond)
}

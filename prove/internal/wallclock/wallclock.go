// Package wallclock gives the process it runs in a clock of its own.
//
// Go reads the time from the page of code that the kernel maps into each process (vDSO), past the C
// library, so that a library that is loaded before it does not reach it. That page may be written by the process that has it,
// as debuggers do.
package wallclock

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Shift sets the wall clock of this process ahead by d, whole seconds, from now on and for all that
// reads it as Go does. The monotonic clock stays as it is. It is for programs that have just begun.
func Shift(d time.Duration) error {
	if err := patch(int32(d / time.Second)); err != nil {
		return fmt.Errorf("wallclock: %w", err)
	}
	from, err := kernel()
	if err != nil {
		return fmt.Errorf("wallclock: %w", err)
	}
	now := time.Now()
	to, err := kernel()
	if err != nil {
		return fmt.Errorf("wallclock: %w", err)
	}
	if now.Before(from.Add(d)) || now.After(to.Add(d)) {
		return fmt.Errorf("wallclock: the clock says %v, and the kernel's %v to %v, which is to be %v behind", now, from, to, d)
	}
	return nil
}

// ShiftOther sets the wall clock of another process ahead by d, whole seconds, of that of
// its host. The process has called Shift, with 0 perhaps, and stands still: for it the
// time that passes on its monotonic clock is less than what passes in the world, as for a
// function that was frozen.
func ShiftOther(pid int, d time.Duration) error {
	if err := patchOther(pid, int32(d/time.Second)); err != nil {
		return fmt.Errorf("wallclock: process %d: %w", pid, err)
	}
	return nil
}

// kernel asks the kernel for the time by a system call.
func kernel() (time.Time, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &t); err != nil {
		return time.Time{}, err
	}
	return time.Unix(t.Unix()), nil
}

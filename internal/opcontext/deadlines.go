package opcontext

import (
	"context"
	"sync"
	"time"
)

// Deadlines ends the operations of one store when their time is over. It has one timer for all of
// them, because setting and stopping a timer wakes up a thread each time. That took a tenth of the
// time of a lone statement. The timer stays set when its operation ends.
//
// A Deadlines is safe for concurrent use. The zero value is valid and owns no goroutine.
type Deadlines struct {
	// Dialing reports whether a connection is being made. If it is nil, none is. It must not change
	// once the Deadlines is in use.
	Dialing func() bool
	// WaitReason returns why operations wait for a connection and what to do, or "" if there are
	// free connections. If it is nil, it returns "". It must not change once the Deadlines is in use.
	WaitReason func() string

	mu        sync.Mutex
	scheduled []scheduled // in no order, because most leave long before they are due
	timerSet  bool        // a timer is to fire
	fires     time.Time   // when it does; no later than the first is due
	timers    int         // how many there were; one that was set before does nothing
}

// WithTimeout returns a context that ends timeout after [Connected] was called on it. If Connected
// is not called, it ends after timeout, or, while a connection is being made, after up to 3 s. It ends some
// time before ctx does, so that the caller can still use the answer. The caller must call [Stop]: a function
// that stops it would be one more allocation. If timeout is 0, WithTimeout returns ctx.
func (d *Deadlines) WithTimeout(ctx context.Context, timeout time.Duration) context.Context {
	if timeout <= 0 {
		return ctx
	}
	now := time.Now()
	c := &Context{Context: ctx, deadlines: d, timeout: timeout}
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(now)
		c.end = deadline.Add(-min(Grace, left/2))
		if left < 2*deadlineDelay {
			c.statementEnd = deadline.Add(deadlineDelay)
		}
		c.shortDeadline = c.end.Before(now.Add(timeout))
	}
	c.due = c.within(now, timeout)
	return c
}

// schedule makes the Deadlines end c when it is due. c may be scheduled already.
func (d *Deadlines) schedule(c *Context, due time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.index == 0 {
		d.scheduled = append(d.scheduled, scheduled{c, due})
		c.index = len(d.scheduled)
	} else {
		d.scheduled[c.index-1].due = due
	}
	// An overdue timer means that the store was used in a testing/synctest bubble, which has
	// its own time.
	if stale := due.Sub(d.fires) > max(c.timeout, DialTimeout); stale {
		d.timerSet, due = false, d.fires // others may be due already
	}
	d.setTimer(due)
}

// unschedule removes c, if it is scheduled.
func (d *Deadlines) unschedule(c *Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(c)
}

// remove moves the last one to the place of c.
func (d *Deadlines) remove(c *Context) {
	if c.index == 0 {
		return
	}
	last := len(d.scheduled) - 1
	moved := d.scheduled[last]
	d.scheduled[c.index-1], moved.index = moved, c.index
	d.scheduled[last] = scheduled{}
	d.scheduled, c.index = d.scheduled[:last], 0
}

// maxTimer is how far ahead a timer is set at most. A timer that an earlier one replaced stays set
// until it fires, so timers for long time limits would accumulate.
const maxTimer = 10 * time.Second

// setTimer sets a timer for due, unless a timer fires earlier. The timer is new each time, several times a
// second, because a timer from a testing/synctest bubble cannot be reset outside.
func (d *Deadlines) setTimer(due time.Time) {
	if d.timerSet && !due.Before(d.fires) {
		return
	}
	if latest := time.Now().Add(maxTimer); latest.Before(due) {
		due = latest
	}
	d.timerSet, d.fires = true, due
	d.timers++
	timer := d.timers
	time.AfterFunc(time.Until(due), func() { d.fire(timer) })
}

// fire ends the Contexts that are due.
func (d *Deadlines) fire(timer int) {
	for _, c := range d.takeDue(timer) {
		c.expire()
	}
}

// pause is the least time between two looks at all Contexts, for each 1,000 of them. The looks then take at
// most a few percent of a processor. With 10,000 Contexts, some end 1 ms late.
const pause = 100 * time.Microsecond

// takeDue removes and returns the Contexts that are due, and sets the timer for the others.
func (d *Deadlines) takeDue(timer int) (due []*Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if timer != d.timers {
		return nil
	}
	d.timerSet = false
	now := time.Now()
	var next time.Time
	for i := 0; i < len(d.scheduled); {
		switch s := d.scheduled[i]; {
		case !now.Before(s.due):
			due = append(due, s.Context)
			d.remove(s.Context) // another one is at i now
			continue
		case next.IsZero() || s.due.Before(next):
			next = s.due
		}
		i++
	}
	if earliest := now.Add(time.Duration(len(d.scheduled)/1000) * pause); len(d.scheduled) > 0 {
		if next.Before(earliest) {
			next = earliest
		}
		d.setTimer(next)
	}
	return due
}

// scheduled is a Context that ends when it is due.
type scheduled struct {
	*Context
	due time.Time
}

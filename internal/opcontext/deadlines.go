package opcontext

import (
	"container/heap"
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

	mu       sync.Mutex
	byDue    contextHeap
	timerSet bool      // a timer is to fire
	fires    time.Time // when it does; no later than the first is due
	timers   int       // how many there were; one that was set before does nothing
}

// WithTimeout returns a context that ends timeout after [Connected] was called on it. If Connected
// is not called, it ends after timeout, or after 3 s while a connection is being made. It ends some
// time before ctx does, so that the caller can still use the answer. The caller must call stop. If
// timeout is 0, WithTimeout returns ctx.
func (d *Deadlines) WithTimeout(ctx context.Context, timeout time.Duration) (limited context.Context, stop func()) {
	if timeout <= 0 {
		return ctx, func() {}
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
	return c, c.stop
}

// schedule makes the Deadlines end c when it is due. c may be scheduled already.
func (d *Deadlines) schedule(c *Context, due time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.entry.index == 0 {
		c.entry.due = due
		heap.Push(&d.byDue, c)
	} else {
		c.entry.due = due
		heap.Fix(&d.byDue, c.entry.index-1)
	}
	// An overdue timer means that the store was used in a testing/synctest bubble, which has
	// its own time.
	if stale := due.Sub(d.fires) > max(c.timeout, DialTimeout); stale {
		d.timerSet = false
	}
	d.setTimer()
}

// unschedule removes c, if it is scheduled.
func (d *Deadlines) unschedule(c *Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.entry.index > 0 {
		heap.Remove(&d.byDue, c.entry.index-1)
	}
}

// maxTimer is how far ahead a timer is set at most. A timer that an earlier one replaced stays set
// until it fires, so timers for long time limits would accumulate.
const maxTimer = 10 * time.Second

// setTimer sets a timer for the first Context that is due, unless a timer fires earlier. The timer
// is new each time, at most a few times a second, because a timer from a testing/synctest bubble
// cannot be reset outside.
func (d *Deadlines) setTimer() {
	if len(d.byDue) == 0 {
		return
	}
	due := d.byDue[0].entry.due
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
	for c := d.popDue(timer); c != nil; c = d.popDue(timer) {
		c.expire()
	}
}

// popDue removes and returns the first Context if it is due. Otherwise it sets the timer.
func (d *Deadlines) popDue(timer int) *Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if timer != d.timers {
		return nil
	}
	if len(d.byDue) > 0 && !time.Now().Before(d.byDue[0].entry.due) {
		return heap.Pop(&d.byDue).(*Context)
	}
	d.timerSet = false
	d.setTimer()
	return nil
}

// heapEntry is the place of a Context in the heap of its Deadlines.
type heapEntry struct {
	due   time.Time
	index int // in the heap, counted from 1; 0 if it is not there
}

// contextHeap is a heap of the scheduled Contexts; the first is the first due.
type contextHeap []*Context

func (h contextHeap) Len() int           { return len(h) }
func (h contextHeap) Less(i, j int) bool { return h[i].entry.due.Before(h[j].entry.due) }

func (h contextHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].entry.index, h[j].entry.index = i+1, j+1
}

// Push implements [heap.Interface].
func (h *contextHeap) Push(x any) {
	c := x.(*Context)
	*h = append(*h, c)
	c.entry.index = len(*h)
}

// Pop implements [heap.Interface].
func (h *contextHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	c.entry.index = 0
	return c
}

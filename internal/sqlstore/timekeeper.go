package sqlstore

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// Timekeeper ends the operations of one store when their time is over. It has one timer for all of
// them, because setting and stopping a timer wakes up a thread each time. That took a tenth of the
// time of a lone statement. The timer stays set when its operation ends.
//
// A Timekeeper is safe for concurrent use. The zero value is valid and owns no goroutine.
type Timekeeper struct {
	// Dialing reports whether a connection is being made. If it is nil, none is. It must not change
	// once the Timekeeper is in use.
	Dialing func() bool
	// Waiting returns why operations wait for a connection and what to do, or "" if there are free
	// connections. If it is nil, it returns "". It must not change once the Timekeeper is in use.
	Waiting func() string

	mu      sync.Mutex
	watched byDue
	set     bool      // a timer is to ring
	rings   time.Time // when it does; no later than the first is due
	timers  int       // how many there were; one that was set before rings for nothing
}

// Limit returns a context that ends timeout after [Connected] was called on it. If Connected is not
// called, it ends after timeout, or after 3 s while a connection is being made. It ends some time
// before ctx does, so that the caller can still use the answer. The caller must call stop. If
// timeout is 0, Limit returns ctx.
func (k *Timekeeper) Limit(ctx context.Context, timeout time.Duration) (limited context.Context, stop func()) {
	if timeout <= 0 {
		return ctx, func() {}
	}
	now := time.Now()
	l := &Limit{Context: ctx, keeper: k, timeout: timeout}
	if deadline, ok := ctx.Deadline(); ok {
		l.end = deadline.Add(-min(headroom, deadline.Sub(now)/2))
		l.short = l.end.Before(now.Add(timeout))
	}
	l.due = l.within(now, timeout)
	return l, l.stop
}

// watch makes the Timekeeper end l when it is due. l may be watched already.
func (k *Timekeeper) watch(l *Limit, due time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.watch.place == 0 {
		l.watch.due = due
		heap.Push(&k.watched, l)
	} else {
		l.watch.due = due
		heap.Fix(&k.watched, l.watch.place-1)
	}
	// An overdue timer means that the store was used in a testing/synctest bubble, which has
	// its own time.
	if stale := due.Sub(k.rings) > max(l.timeout, DialLimit); stale {
		k.set = false
	}
	k.wind()
}

// forget ends the watch of l, if there is one.
func (k *Timekeeper) forget(l *Limit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.watch.place > 0 {
		heap.Remove(&k.watched, l.watch.place-1)
	}
}

// farthest is how far ahead a timer is set at most. A timer that an earlier one replaced stays set
// until it fires, so timers for long time limits would accumulate.
const farthest = 10 * time.Second

// wind sets a timer for the first Limit that is due, unless a timer fires earlier. The timer is new
// each time, at most a few times a second, because a timer from a testing/synctest bubble cannot be
// reset outside.
func (k *Timekeeper) wind() {
	if len(k.watched) == 0 {
		return
	}
	due := k.watched[0].watch.due
	if k.set && !due.Before(k.rings) {
		return
	}
	if latest := time.Now().Add(farthest); latest.Before(due) {
		due = latest
	}
	k.set, k.rings = true, due
	k.timers++
	timer := k.timers
	time.AfterFunc(time.Until(due), func() { k.ring(timer) })
}

// ring ends the Limits that are due.
func (k *Timekeeper) ring(timer int) {
	for l := k.late(timer); l != nil; l = k.late(timer) {
		l.expire()
	}
}

// late removes and returns the first Limit if it is due. Otherwise it winds the timer.
func (k *Timekeeper) late(timer int) *Limit {
	k.mu.Lock()
	defer k.mu.Unlock()
	if timer != k.timers {
		return nil
	}
	if len(k.watched) > 0 && !time.Now().Before(k.watched[0].watch.due) {
		return heap.Pop(&k.watched).(*Limit)
	}
	k.set = false
	k.wind()
	return nil
}

// watch is the position of a Limit among those that are watched. It belongs to the Timekeeper.
type watch struct {
	due   time.Time
	place int // in the heap, counted from 1; 0 if it is not there
}

// byDue is a heap of the watched Limits.
type byDue []*Limit

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].watch.due.Before(h[j].watch.due) }

func (h byDue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].watch.place, h[j].watch.place = i+1, j+1
}

// Push implements [heap.Interface].
func (h *byDue) Push(x any) {
	l := x.(*Limit)
	*h = append(*h, l)
	l.watch.place = len(*h)
}

// Pop implements [heap.Interface].
func (h *byDue) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.watch.place = 0
	return l
}

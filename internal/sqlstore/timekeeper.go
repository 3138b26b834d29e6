package sqlstore

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// Timekeeper ends the operations of one store when their time is over. It has one timer
// for all of them, which stays set when the operation is over for which it was: to set
// one, and to stop it, wakes up a thread each time, and took a tenth of the time of a
// lone statement. It is safe for concurrent use; the zero value is valid, and owns no
// goroutine.
type Timekeeper struct {
	// Dialing reports whether a connection is being made; nil is never. It must not
	// change once the Timekeeper is in use.
	Dialing func() bool
	// Waiting returns why operations wait for a connection and what to do, or "" if there
	// are free connections; nil returns "". It must not change once the Timekeeper is in use.
	Waiting func() string

	mu      sync.Mutex
	watched byDue
	set     bool      // a timer is to ring
	rings   time.Time // when it does; no later than the first is due
	timers  int       // how many there were; one that was set before rings for nothing
}

// Limit returns a context that ends timeout after [Connected] was called on it,
// or on the way there: when timeout is over, or while a connection is being made,
// after 3 s. It ends some time before ctx does, so that the caller can still use the
// answer. The caller must call stop. If timeout is 0 it returns ctx.
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

// watch sees to it that l is told when it is due, also if it is watched already.
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
	// That the timer has not rung though it should have is so for a store that was used
	// in a bubble of testing/synctest, where there is another time.
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

// farthest is how far ahead a timer is set at most. One that an earlier timer replaced stays
// set until it rings: of a far time limit they would pile up.
const farthest = 10 * time.Second

// wind sets a timer for the first that is due, unless a timer rings before. It is a new one
// each time, a few times a second at most: a timer that was made in a bubble of
// testing/synctest cannot be set again outside.
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

// ring tells those that are due.
func (k *Timekeeper) ring(timer int) {
	for l := k.late(timer); l != nil; l = k.late(timer) {
		l.expire()
	}
}

// late returns the first if it is due, watched no more; else it winds the timer.
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

// watch is where a Limit is among those that are watched. It is the Timekeeper's.
type watch struct {
	due   time.Time
	place int // in the heap, counted from 1; 0 if it is not there
}

// byDue is a heap of those that are watched.
type byDue []*Limit

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].watch.due.Before(h[j].watch.due) }

func (h byDue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].watch.place, h[j].watch.place = i+1, j+1
}

// Push is [heap.Interface]'s.
func (h *byDue) Push(x any) {
	l := x.(*Limit)
	*h = append(*h, l)
	l.watch.place = len(*h)
}

// Pop is [heap.Interface]'s.
func (h *byDue) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.watch.place = 0
	return l
}

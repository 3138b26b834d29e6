package sqlstore

import (
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

	mu          sync.Mutex
	first, last *Limit // that are watched, by when they are due
	timer       *time.Timer
	set         bool      // the timer is to ring
	rings       time.Time // when it does; no later than the first is due
}

// place is where a Limit is among those that are watched. It is the Timekeeper's.
type place struct {
	due        time.Time
	prev, next *Limit
	watched    bool
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
		left := deadline.Sub(now)
		l.end = deadline.Add(-min(headroom, left/2))
		l.short = left < near
	}
	l.due = l.within(now, timeout)
	return l, l.stop
}

// watch sees to it that l is told when it is due, also if it is watched already.
func (k *Timekeeper) watch(l *Limit, due time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remove(l)
	after := k.last // most have the same time limit
	for after != nil && due.Before(after.place.due) {
		after = after.place.prev
	}
	l.place = place{due: due, prev: after, watched: true}
	if after == nil {
		l.place.next, k.first = k.first, l
	} else {
		l.place.next, after.place.next = after.place.next, l
	}
	if next := l.place.next; next == nil {
		k.last = l
	} else {
		next.place.prev = l
	}
	k.wind()
}

// forget ends the watch of l, if there is one.
func (k *Timekeeper) forget(l *Limit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remove(l)
}

func (k *Timekeeper) remove(l *Limit) {
	p := l.place
	if !p.watched {
		return
	}
	if p.prev == nil {
		k.first = p.next
	} else {
		p.prev.place.next = p.next
	}
	if p.next == nil {
		k.last = p.prev
	} else {
		p.next.place.prev = p.prev
	}
	l.place = place{}
}

// wind sets the timer for the first, unless it rings before.
func (k *Timekeeper) wind() {
	if k.first == nil || k.set && !k.first.place.due.Before(k.rings) {
		return
	}
	k.set, k.rings = true, k.first.place.due
	if k.timer == nil {
		k.timer = time.AfterFunc(time.Until(k.rings), k.ring)
	} else {
		k.timer.Reset(time.Until(k.rings))
	}
}

// ring tells those that are due.
func (k *Timekeeper) ring() {
	for l := k.overdue(); l != nil; l = k.overdue() {
		l.expire()
	}
}

// overdue returns the first if it is due, watched no more, and winds the timer if it is
// not.
func (k *Timekeeper) overdue() *Limit {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.first; l != nil && !time.Now().Before(l.place.due) {
		k.remove(l)
		return l
	}
	k.set = false
	k.wind()
	return nil
}

package postgres

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
)

// expectation is what the next take of a key is likely to get. It decides nothing but
// which statement is sent first, and whether a merged one reads the row before it updates it.
type expectation int

const (
	unknown expectation = iota // the hot statement; there may be no row
	unsure                     // the hot statement, although there is a row
	granted                    // the grant alone, which costs less
	refused                    // a read, which costs less still
)

const (
	// expectedShards is how many locks there are, and expectedPlaces how many keys have
	// a place behind each: 640 kB, used as keys come.
	expectedShards = 64
	expectedPlaces = 256
)

// expectations is what was last seen of some keys. A key takes the place of another, and
// one that is not found is asked about as if it were the first time. It is safe for
// concurrent use; a nil one expects nothing.
type expectations struct {
	seed   maphash.Seed
	base   time.Time // of the process's own clock
	wall   time.Time // the same, without a monotonic reading
	shards [expectedShards]struct {
		mu     sync.Mutex
		places [expectedPlaces]seen
	}
}

// seen is the state of a key under the policy of the operation that saw it.
type seen struct {
	tag         uint64 // of limiter and key; 0 for none
	ahead       int64  // how far the database's clock is ahead of the process's
	start, used int64  // of a window; for a bucket start is when it is full
	roomy       bool   // at least half of it was left
}

func newExpectations() *expectations {
	base := time.Now()
	return &expectations{seed: maphash.MakeSeed(), base: base, wall: base.Round(0)}
}

// place returns where a key's state is, under lock, and what it is told by: the same
// limiter and key can have a row in each table.
func (e *expectations) place(op *limiter.Op) (at *seen, tag uint64, lock *sync.Mutex) {
	tag = maphash.String(e.seed, op.Key)*31 + maphash.String(e.seed, op.Name)
	if _, window := op.Policy.(limiter.FixedWindow); window {
		tag = ^tag
	}
	shard := &e.shards[tag%expectedShards]
	return &shard.places[tag/expectedShards%expectedPlaces], tag | 1<<63, &shard.mu
}

// now reads the process's clock: the more of what the monotonic and the wall clock say
// has gone by, because the first stands still while a process is frozen.
func (e *expectations) now() int64 {
	if e == nil {
		return 0
	}
	now := time.Now()
	return int64(max(now.Sub(e.base), now.Round(0).Sub(e.wall)))
}

// of returns what to expect of op: what follows from the state that was seen, carried
// forward to now. It expects a grant only of what had plenty. Many processes that share
// a busy key each see only now and then how little is left. All of them would try to write
// what only one of them can. An operation with a time of its own is not looked up.
func (e *expectations) of(op limiter.Op) expectation {
	if e == nil || op.At != 0 {
		return unknown
	}
	var row limiter.Row
	_, window := op.Policy.(limiter.FixedWindow)
	if window {
		row = windowState(op).Row
	} else {
		p, step := bucketOf(op)
		row.Period, row.Limit = step, p.Capacity
	}
	at, tag, lock := e.place(&op)
	lock.Lock()
	found := *at
	lock.Unlock()
	if found.tag != tag {
		return unknown
	}
	now := e.now() + found.ahead
	if window {
		row.Start, row.Used = found.start, found.used
	} else {
		row.FullAt = found.start
	}
	if row.Expired(now) { // it may have been swept
		return unknown
	}
	row.At = now
	next, state := op.Apply(row, now)
	switch {
	case !state.Took:
		return refused
	case found.roomy && next.Start == row.Start: // and in the window that was seen
		return granted
	}
	return unsure
}

// keep remembers what op was told when the process's clock was at now.
func (e *expectations) keep(op limiter.Op, s limiter.State, now int64) {
	if e == nil || op.At != 0 {
		return
	}
	at, tag, lock := e.place(&op)
	saw := seen{tag: tag, ahead: s.Now - now}
	if _, window := op.Policy.(limiter.FixedWindow); window {
		saw.start, saw.used = s.Row.Start, s.Row.Used
		saw.roomy = s.Row.Start <= s.Now && s.Row.Used <= s.Row.Limit/2
	} else {
		saw.start = s.Row.FullAt
		saw.roomy = s.Row.FullAt-s.Now <= s.Row.Limit*s.Row.Period/2
	}
	lock.Lock()
	*at = saw
	lock.Unlock()
}

// forget removes what is remembered for op.
func (e *expectations) forget(op limiter.Op) {
	if e == nil || op.At != 0 {
		return
	}
	at, tag, lock := e.place(&op)
	lock.Lock()
	if at.tag == tag {
		*at = seen{}
	}
	lock.Unlock()
}

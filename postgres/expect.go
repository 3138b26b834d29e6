package postgres

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
)

// expectation is what the next take of a key is likely to get. It decides nothing but
// which statement is sent first.
type expectation int

const (
	unknown expectation = iota // the hot statement
	granted                    // the grant alone, which costs less
	refused                    // a read, which costs less still
)

// expectations is what was last seen of some keys. They are few, in places of their
// own: a key takes the place of another, and one that is not found is asked about as if
// it were the first time. It is safe for concurrent use; the zero value is not valid.
type expectations struct {
	seed   maphash.Seed
	base   time.Time // of the process's own clock
	places [1024]seen
}

// seen is the state of a key, and when the process saw it.
type seen struct {
	mu    sync.Mutex
	tag   uint64 // of limiter and key; 0 for none
	since time.Duration
	now   int64
	row   limiter.Row
}

func newExpectations() *expectations {
	return &expectations{seed: maphash.MakeSeed(), base: time.Now()}
}

// place returns where a key's state is, and what it is told by: the same limiter and
// key can have a row in each table.
func (e *expectations) place(op *limiter.Op) (*seen, uint64) {
	tag := maphash.String(e.seed, op.Key)*31 + maphash.String(e.seed, op.Name)
	if _, window := op.Policy.(limiter.FixedWindow); window {
		tag = ^tag
	}
	tag |= 1
	return &e.places[tag>>1%uint64(len(e.places))], tag
}

// of returns what to expect of op: what follows from the state that was seen, by the
// time that has gone by since. An operation with a time of its own is not looked up.
func (e *expectations) of(op limiter.Op) expectation {
	if e == nil || op.At != 0 {
		return unknown
	}
	at, tag := e.place(&op)
	at.mu.Lock()
	found, row, now := at.tag == tag, at.row, at.now+int64(time.Since(e.base)-at.since)
	at.mu.Unlock()
	if !found {
		return unknown
	}
	next, state := op.Apply(row, now)
	switch {
	case state.Took:
		return granted
	case next == row:
		return refused
	}
	return unknown // another policy's
}

// keep remembers what op was told.
func (e *expectations) keep(op limiter.Op, s limiter.State) {
	if e == nil || op.At != 0 {
		return
	}
	at, tag := e.place(&op)
	at.mu.Lock()
	defer at.mu.Unlock()
	at.tag, at.since, at.now, at.row = tag, time.Since(e.base), s.Now, s.Row
}

package borrow

import (
	"container/list"
	"hash/maphash"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
)

const (
	shards = 64
	// maxHoldings is how many keys a Store remembers, apart from those whose tokens it gives back. Each takes up to
	// 0.5 kB and the key itself.
	maxHoldings = 65_536
)

// id identifies the row of a bucket.
type id struct{ name, key string }

// entry is what a Store knows of a key. The lock of its shard guards it.
type entry struct {
	id
	holding
	demand
	carried int64           // see [holding.refund]
	back    <-chan struct{} // closed when all that was owed was given back
	timeout time.Duration   // of the latest operation
	place   *list.Element

	barred  int  // how many operations are in flight that forbid to borrow
	running bool // a goroutine borrows
	over    bool // the tokens that it borrows must not enter the holding
	reset   bool // a Reset has freed these tokens, so they must not be given back

	waiting []*waiter // for the next borrow, in order of arrival
}

type shard struct {
	mu      sync.Mutex
	entries map[id]*entry
	used    *list.List // the entries, the one used last at the front
	stats   Stats
	_       [64]byte // a shard has a cache line to itself
}

var seed = maphash.MakeSeed()

func (s *Store) shardOf(op *limiter.Op) *shard {
	return &s.shards[(maphash.String(seed, op.Key)+31*maphash.String(seed, op.Name))%shards]
}

// entry returns the entry of a key, and adds one if there is none. If these are too many, it removes others.
// The caller has locked the shard.
func (s *Store) entry(sh *shard, op *limiter.Op, now instant) *entry {
	if e := sh.entries[id{op.Name, op.Key}]; e != nil {
		sh.used.MoveToFront(e.place)
		e.timeout = op.Timeout
		return e
	}
	for sh.used.Len() >= maxHoldings/shards && s.removeOldest(sh, now) {
	}
	e := &entry{id: id{op.Name, op.Key}, back: closed, timeout: op.Timeout}
	e.place = sh.used.PushFront(e)
	sh.entries[e.id] = e
	return e
}

// removeOldest removes the entry that was used least recently, if it holds no tokens. Otherwise it starts to
// give them back, and reports false: the entry stays for that time, because a Reset of its key must wait. It
// keeps the entries that somebody works on.
func (s *Store) removeOldest(sh *shard, now instant) bool {
	for place := sh.used.Back(); place != nil; place = place.Prev() {
		e := place.Value.(*entry)
		if e.running || e.barred > 0 || !isClosed(e.back) {
			continue
		}
		if e.tokens > 0 {
			s.giveBackNow(e, sh.release(e, &e.holding, now, false))
			return false
		}
		sh.remove(e)
		return true
	}
	return false
}

func (sh *shard) remove(e *entry) {
	sh.used.Remove(e.place)
	delete(sh.entries, e.id)
}

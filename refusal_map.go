package limiter

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

const (
	// refusalShards is how many locks the refusals are spread over. It must be a
	// power of two.
	refusalShards = 64
	// evictTries is how many keys are looked at to find the one to forget. Maps
	// begin each iteration somewhere else, so these are any keys.
	evictTries = 4
)

// refusalMap is a bounded map of refusals by key. If it is full, a new key replaces one of its shard:
// the oldest of a few random keys. A client that floods the map with keys cannot know which one
// goes, and pays a round trip for each.
type refusalMap struct {
	seed   maphash.Seed
	shards [refusalShards]refusalShard
	size   int64
	held   atomic.Int64 // by all shards; at most size
}

type refusalShard struct {
	mu   sync.RWMutex
	keys map[string]*refusal
	// gen counts what was given back, and paused what is being given back.
	gen    uint64
	paused int
	_      [128 - 24 - 8 - 8 - 8]byte // a pair of cache lines each
}

func (d *refusalMap) init(size int) {
	d.seed, d.size = maphash.MakeSeed(), int64(size)
}

func (d *refusalMap) shard(key string) *refusalShard {
	return &d.shards[maphash.String(d.seed, key)%refusalShards]
}

// find returns the key's refusal, or nil, and the generation that keep needs.
func (d *refusalMap) find(key string) (r *refusal, gen uint64) {
	sh := d.shard(key)
	sh.mu.RLock()
	r, gen = sh.keys[key], sh.gen
	sh.mu.RUnlock()
	return r, gen
}

// known returns sum as a string. It allocates nothing if the map holds that key.
func (d *refusalMap) known(sum []byte) string {
	sh := &d.shards[maphash.Bytes(d.seed, sum)%refusalShards]
	sh.mu.RLock()
	r := sh.keys[string(sum)]
	sh.mu.RUnlock()
	if r != nil {
		return r.key
	}
	return string(sum)
}

// keep stores r, unless something was given back since find returned gen.
func (d *refusalMap) keep(r *refusal, gen uint64) {
	sh := d.shard(r.key)
	for range 2 {
		if d.tryKeep(sh, r, gen) {
			return
		}
		d.makeRoom() // all of it is other shards'
	}
}

func (d *refusalMap) tryKeep(sh *refusalShard, r *refusal, gen uint64) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.gen != gen || sh.paused > 0 {
		return true
	}
	if _, found := sh.keys[r.key]; !found && !d.reserve() {
		if !sh.evict() {
			return false
		}
	}
	if sh.keys == nil {
		sh.keys = make(map[string]*refusal)
	}
	sh.keys[r.key] = r
	return true
}

// reserve counts one more key, if there is room.
func (d *refusalMap) reserve() bool {
	for {
		n := d.held.Load()
		if n >= d.size {
			return false
		}
		if d.held.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// makeRoom forgets one key of any shard.
func (d *refusalMap) makeRoom() {
	for i := range d.shards {
		sh := &d.shards[i]
		sh.mu.Lock()
		evicted := sh.evict()
		sh.mu.Unlock()
		if evicted {
			d.held.Add(-1)
			return
		}
	}
}

// evict forgets one key. The caller holds the lock and updates the count.
func (sh *refusalShard) evict() bool {
	var first *refusal
	tries := 0
	for _, r := range sh.keys {
		if first == nil || r.sent.mono < first.sent.mono {
			first = r
		}
		if tries++; tries == evictTries {
			break
		}
	}
	if first == nil {
		return false
	}
	delete(sh.keys, first.key)
	return true
}

// drop forgets r if it is still the key's refusal.
func (d *refusalMap) drop(r *refusal) {
	sh := d.shard(r.key)
	sh.mu.Lock()
	if sh.keys[r.key] == r {
		delete(sh.keys, r.key)
		d.held.Add(-1)
	}
	sh.mu.Unlock()
}

func (d *refusalMap) suspend(key string) *refusalShard {
	sh := d.shard(key)
	sh.mu.Lock()
	if _, found := sh.keys[key]; found {
		delete(sh.keys, key)
		d.held.Add(-1)
	}
	sh.paused++
	sh.mu.Unlock()
	return sh
}

func (sh *refusalShard) resume() {
	sh.mu.Lock()
	sh.paused--
	sh.gen++
	sh.mu.Unlock()
}

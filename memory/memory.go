// Package memory stores the state of limiters in the memory of one process.
//
// Use it in tests of code that limits, for a limit that one process alone keeps, and as the
// fallback of [limiter.FailLocal]. The state is lost when the process ends, and no other process
// shares it. Where each request may reach a new process, as on AWS Lambda, it limits nothing; use
// package postgres there.
//
//	logins, err := limiter.New(memory.New(), "login", limiter.PerMinute(5))
//
// Package memory is also the reference that package storetest compares other stores with.
package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
)

const (
	// shards is how many locks the keys are spread over: enough that two of a few
	// dozen cores seldom meet. It must be a power of two.
	shards = 256
	// minTidy is the number of keys below which a shard is not tidied.
	minTidy = 64
)

// Store is a [limiter.Store] that keeps rows in maps. When it would otherwise grow, it forgets expired
// rows. So it holds at most about twice as many keys as were ever in use at once, or 16,000 if that is
// more. The zero Store is ready for use. A Store is safe for concurrent use, and must not be copied.
type Store struct {
	clock  func() time.Time // nil for time.Now
	shards [shards]shard
}

// seed is that of the hashes of all stores.
var seed = maphash.MakeSeed()

type shard struct {
	mu     sync.Mutex
	rows   map[uint64]*entry // by the hash of limiter and key, which is made once
	held   int               // how many there are
	tidyAt int               // the number of rows, at least minTidy, at which to look for expired ones
	// A shard has two cache lines to itself, which processors fetch in pairs: a
	// lock that is taken does not slow its neighbors down.
	_ [96]byte
}

// entry is the row of one key. Entries with the same hash form a list. They are rare, except for
// the two policies of one limiter.
type entry struct {
	next      *entry
	name, key string
	kind      limiter.PolicyKind
	row       limiter.Row
}

// find returns the entry of an operation, or nil.
func (sh *shard) find(hash uint64, op *limiter.Op) *entry {
	e, kind := sh.rows[hash], limiter.KindOf(op.Policy)
	for e != nil && (e.key != op.Key || e.name != op.Name || e.kind != kind) {
		e = e.next
	}
	return e
}

// Option changes how a [Store] works.
type Option func(*Store)

// WithClock makes the [Store] read the time from now, instead of the process's clock, so that tests
// can set the time. A nil now is ignored. The function now must be safe for concurrent use.
func WithClock(now func() time.Time) Option {
	return func(s *Store) {
		if now != nil {
			s.clock = now
		}
	}
}

// New returns an empty Store. It panics if an option is nil.
func New(opts ...Option) *Store {
	s := new(Store)
	for _, opt := range opts {
		if opt == nil {
			panic("memory: an option of New is nil; leave it out")
		}
		opt(s)
	}
	return s
}

// now reads the Store's clock.
func (s *Store) now() time.Time {
	if s.clock != nil {
		return s.clock()
	}
	return time.Now()
}

// Do implements [limiter.Store].
func (s *Store) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if err := ctx.Err(); err != nil {
		return limiter.State{}, fmt.Errorf("memory: %w: %w", limiter.ErrCanceled, err)
	}
	if err := op.Check(); err != nil {
		return limiter.State{}, fmt.Errorf("memory: %w", err)
	}
	hash := hashOf(&op)
	sh := &s.shards[hash%shards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	// The clock is read under the lock: readings are then in the order of takes.
	now, err := op.Clock(s.now)
	if err != nil {
		return limiter.State{}, fmt.Errorf("memory: %w", err)
	}
	if e := sh.find(hash, &op); e != nil {
		next, state := op.Apply(e.row, now)
		e.row = next
		return state, nil
	}
	next, state := op.Apply(limiter.Row{}, now)
	s.add(sh, hash, &op, next, now)
	return state, nil
}

// DoAll implements [limiter.AllStore].
func (s *Store) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memory: %w: %w", limiter.ErrCanceled, err)
	}
	if err := limiter.CheckOps(ops); err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	hashes, locks := make([]uint64, len(ops)), make([]uint64, len(ops))
	for i := range ops {
		hashes[i] = hashOf(&ops[i])
		locks[i] = hashes[i] % shards
	}
	slices.Sort(locks)
	locks = slices.Compact(locks)
	for _, i := range locks {
		s.shards[i].mu.Lock()
	}
	defer func() {
		for _, i := range locks {
			s.shards[i].mu.Unlock()
		}
	}()
	now, err := ops[0].Clock(s.now)
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	entries, rows := make([]*entry, len(ops)), make([]limiter.Row, len(ops))
	for i := range ops {
		sh := &s.shards[hashes[i]%shards]
		if entries[i] = sh.find(hashes[i], &ops[i]); entries[i] != nil {
			rows[i] = entries[i].row
		}
	}
	next, states := limiter.ApplyAll(ops, rows, now)
	// Adding a row may remove expired entries. So every entry found gets its row before.
	for i, e := range entries {
		if e != nil {
			e.row = next[i]
		}
	}
	for i, e := range entries {
		if e == nil {
			s.add(&s.shards[hashes[i]%shards], hashes[i], &ops[i], next[i], now)
		}
	}
	return states, nil
}

// hashOf returns the hash of an operation's limiter and key.
func hashOf(op *limiter.Op) uint64 {
	return maphash.String(seed, op.Key) + 31*maphash.String(seed, op.Name)
}

// add stores the first row of a key. If the shard has grown, it forgets expired rows.
func (s *Store) add(sh *shard, hash uint64, op *limiter.Op, row limiter.Row, now int64) {
	if row == (limiter.Row{}) {
		return
	}
	if sh.rows == nil {
		sh.rows = make(map[uint64]*entry)
	}
	sh.rows[hash] = &entry{next: sh.rows[hash], name: op.Name, key: op.Key, kind: limiter.KindOf(op.Policy), row: row}
	if sh.held++; sh.held >= max(minTidy, sh.tidyAt) {
		// Of an operation's own time and the store's, the earlier: neither a replay of the past nor a
		// test of the future forgets what counts.
		sh.remove(min(now, s.now().UnixNano()), int64(sh.held))
		sh.tidyAt = 2 * sh.held
	}
}

// remove deletes up to limit rows that are expired at now.
func (sh *shard) remove(now, limit int64) (removed int64) {
	for hash, first := range sh.rows {
		for at := &first; *at != nil && removed < limit; {
			if e := *at; e.row.Expired(now) {
				*at = e.next
				removed++
			} else {
				at = &e.next
			}
		}
		if first == nil {
			delete(sh.rows, hash)
		} else {
			sh.rows[hash] = first
		}
		if removed == limit {
			break
		}
	}
	sh.held -= int(removed)
	return removed
}

// Sweep deletes up to limit expired rows: see [limiter.Row.Expired]. It returns how many it deleted,
// also with an error. Calling Sweep is never necessary, but it frees memory sooner after a peak. If
// limit is below 1, the error is [limiter.ErrInvalid]; if ctx has ended, it is [limiter.ErrCanceled].
// Each call starts at a random place, so that calls that ctx ends early reach all keys in the end.
//
// Sweep goes by the Store's clock. If a Limiter uses a [limiter.WithClock] that is more than one
// hour behind, Sweep deletes rows in use; give the Store the same clock with [WithClock].
func (s *Store) Sweep(ctx context.Context, limit int64) (removed int64, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("memory: %w: the limit of Sweep is %d; it must be at least 1", limiter.ErrInvalid, limit)
	}
	first := rand.IntN(shards)
	for i := range s.shards {
		if err := ctx.Err(); err != nil {
			return removed, fmt.Errorf("memory: %w: %w", limiter.ErrCanceled, err)
		}
		sh := &s.shards[(first+i)%shards]
		sh.mu.Lock()
		removed += sh.remove(s.now().UnixNano(), limit-removed)
		sh.mu.Unlock()
		if removed == limit {
			break
		}
	}
	return removed, nil
}

// Check returns nil, because a Store in memory always works.
func (s *Store) Check(context.Context) error { return nil }

// Close returns nil and does nothing. The Store stays usable.
func (s *Store) Close() error { return nil }

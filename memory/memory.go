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
	"errors"
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

// Store is a [limiter.Store] that keeps rows in maps. When it would otherwise grow, it forgets keys
// whose limit has been full again for one hour, so that it holds at most about twice the keys in
// use. Make one with [New]; the zero Store is not valid. A Store is safe for concurrent use.
type Store struct {
	now    func() time.Time
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu     sync.Mutex
	rows   map[uint64]*entry // by the hash of limiter and key, which is made once
	held   int               // how many there are
	tidyAt int               // the number of rows at which to look for expired ones
	// A shard has two cache lines to itself, which processors fetch in pairs: a
	// lock that is taken does not slow its neighbors down.
	_ [96]byte
}

// entry is the row of one key. Entries with the same hash form a list. They are rare, except for
// the two policies of one limiter.
type entry struct {
	next      *entry
	name, key string
	window    bool
	row       limiter.Row
}

// find returns the entry of an operation, or nil.
func (sh *shard) find(hash uint64, op *limiter.Op) *entry {
	e, window := sh.rows[hash], isWindow(op)
	for e != nil && (e.key != op.Key || e.name != op.Name || e.window != window) {
		e = e.next
	}
	return e
}

// Option changes how a [Store] works. [New] ignores a nil Option.
type Option func(*Store)

// WithClock makes the [Store] read the time from now, instead of the process's clock, so that tests
// can set the time. A nil now is ignored. The function now must be safe for concurrent use.
func WithClock(now func() time.Time) Option {
	return func(s *Store) {
		if now != nil {
			s.now = now
		}
	}
}

// New returns an empty Store.
func New(opts ...Option) *Store {
	s := &Store{now: time.Now, seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i] = shard{rows: make(map[uint64]*entry), tidyAt: minTidy}
	}
	for _, opt := range opts {
		if opt != nil {
			opt(s)
		}
	}
	return s
}

// Do implements [limiter.Store].
func (s *Store) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if err := ctx.Err(); err != nil {
		return limiter.State{}, fmt.Errorf("memory: %w: %w", limiter.ErrCanceled, err)
	}
	if op.Kind < limiter.OpTake || op.Kind > limiter.OpBlock {
		return limiter.State{}, fmt.Errorf("memory: operation %d: %w", op.Kind, errors.ErrUnsupported)
	}
	hash := s.hash(&op)
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
	hashes, locks := make([]uint64, len(ops)), make([]uint64, len(ops))
	for i := range ops {
		hashes[i] = s.hash(&ops[i])
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
	for i, e := range entries {
		if e != nil {
			e.row = next[i]
		} else {
			s.add(&s.shards[hashes[i]%shards], hashes[i], &ops[i], next[i], now)
		}
	}
	return states, nil
}

// hash returns the hash of an operation's limiter and key.
func (s *Store) hash(op *limiter.Op) uint64 {
	return maphash.String(s.seed, op.Key) + 31*maphash.String(s.seed, op.Name)
}

// add stores the first row of a key. If the shard has grown, it forgets expired rows.
func (s *Store) add(sh *shard, hash uint64, op *limiter.Op, row limiter.Row, now int64) {
	if row == (limiter.Row{}) {
		return
	}
	sh.rows[hash] = &entry{next: sh.rows[hash], name: op.Name, key: op.Key, window: isWindow(op), row: row}
	if sh.held++; sh.held >= sh.tidyAt {
		// Of an operation's own time and the store's, the earlier: neither a replay of the past nor a
		// test of the future forgets what counts.
		sh.remove(min(now, s.now().UnixNano()), sh.held)
		sh.tidyAt = max(minTidy, 2*sh.held)
	}
}

func isWindow(op *limiter.Op) bool {
	_, ok := op.Policy.(limiter.FixedWindow)
	return ok
}

// remove deletes up to limit rows that are expired at now.
func (sh *shard) remove(now int64, limit int) (removed int64) {
	for hash, first := range sh.rows {
		for at := &first; *at != nil && removed < int64(limit); {
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
		if removed == int64(limit) {
			break
		}
	}
	sh.held -= int(removed)
	return removed
}

// Sweep deletes up to limit keys whose limit has been full again for one hour. It returns how many
// it deleted, also with an error. Calling Sweep is never necessary, because the Store forgets keys
// by itself. If limit is below 1, the error is [limiter.ErrInvalid]; if ctx has ended, it is
// [limiter.ErrCanceled]. Each call starts at a random place, so that calls that ctx ends early
// reach all keys in the end.
//
// Sweep goes by the Store's clock. If a Limiter uses a [limiter.WithClock] that is more than one
// hour behind, Sweep deletes rows in use; give the Store the same clock with [WithClock].
func (s *Store) Sweep(ctx context.Context, limit int) (removed int64, err error) {
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
		removed += sh.remove(s.now().UnixNano(), limit-int(removed))
		sh.mu.Unlock()
		if removed == int64(limit) {
			break
		}
	}
	return removed, nil
}

// Check returns nil, because a Store in memory always works.
func (s *Store) Check(context.Context) error { return nil }

// Close returns nil and does nothing. The Store stays usable.
func (s *Store) Close() error { return nil }

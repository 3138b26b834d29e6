// Package memory is a limiter.Store in the process: the reference that other
// stores are compared with, the store for tests of code that limits, and a limit
// for one process. Its state is lost with the process and shared with nobody;
// on serverless, where every request may meet a new process, it limits nothing.
package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
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

// Store keeps state in maps, by way of [limiter.Op.Apply] under a lock. It
// forgets keys an hour after they are as if never used, when it would otherwise
// grow, so that it holds at most about twice the keys in use. Make one with
// [New]; a Store is safe for concurrent use.
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

// entry is the row of one key. Those of the same hash, which are rare but for the two
// policies of one limiter, are a list.
type entry struct {
	next      *entry
	name, key string
	window    bool
	row       limiter.Row
}

// find returns the entry of an operation, or nil.
func (sh *shard) find(hash uint64, op *limiter.Op, window bool) *entry {
	e := sh.rows[hash]
	for e != nil && (e.key != op.Key || e.name != op.Name || e.window != window) {
		e = e.next
	}
	return e
}

// Option changes how a [Store] works.
type Option func(*Store)

// WithClock tells the [Store] to read the time from now, in place of the
// process's clock, for tests that move time by hand. A nil now is ignored.
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

// Do carries out op, as [limiter.Store] says.
func (s *Store) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if err := ctx.Err(); err != nil {
		return limiter.State{}, fmt.Errorf("memory: %w: %w", limiter.ErrCanceled, err)
	}
	if op.Kind < limiter.OpTake || op.Kind > limiter.OpReset {
		return limiter.State{}, fmt.Errorf("memory: operation %d: %w", op.Kind, errors.ErrUnsupported)
	}
	_, window := op.Policy.(limiter.FixedWindow)
	hash := maphash.String(s.seed, op.Key) + 31*maphash.String(s.seed, op.Name)
	sh := &s.shards[hash%shards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	// The clock is read under the lock: readings are then in the order of takes.
	now, err := op.Clock(s.now)
	if err != nil {
		return limiter.State{}, fmt.Errorf("memory: %w", err)
	}
	if e := sh.find(hash, &op, window); e != nil {
		next, state := op.Apply(e.row, now)
		e.row = next
		return state, nil
	}
	next, state := op.Apply(limiter.Row{}, now)
	if next != (limiter.Row{}) {
		sh.rows[hash] = &entry{next: sh.rows[hash], name: op.Name, key: op.Key, window: window, row: next}
		if sh.held++; sh.held >= sh.tidyAt {
			// Of an operation's own time and the store's, the earlier: neither a
			// replay of the past nor a test of the future forgets what counts.
			sh.remove(min(now, s.now().UnixNano()), sh.held)
			sh.tidyAt = max(minTidy, 2*sh.held)
		}
	}
	return state, nil
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

// Sweep deletes up to limit keys that have been as if never used for an hour, and returns
// how many it deleted, also with an error. A limit below 1 is [limiter.ErrInvalid]. Each
// call begins at a random place, so that calls that ctx ends early delete all of them in
// the end. Calling Sweep is never necessary: see [Store].
//
// Sweep goes by the Store's own clock, and deletes rows in use of a Limiter whose
// [limiter.WithClock] is more than an hour behind: give the Store the same clock with
// [WithClock].
func (s *Store) Sweep(ctx context.Context, limit int) (removed int64, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("memory: %w: Sweep of at most %d keys; pass at least 1", limiter.ErrInvalid, limit)
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

// Check returns nil: a Store in memory is always in order.
func (s *Store) Check(context.Context) error { return nil }

// Close returns nil: there is nothing to close. The Store stays usable.
func (s *Store) Close() error { return nil }

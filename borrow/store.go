package borrow

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
)

// Store is a [limiter.Store] that takes tokens of busy keys ahead. It implements [limiter.AllStore]. Make one
// with [New]; the zero Store is not valid. A Store is safe for concurrent use.
type Store struct {
	inner   limiter.Store
	n       int64
	ttl     time.Duration
	clocks  func() instant
	off     atomic.Bool           // all takes go to the inner store
	answers atomic.Uint64         // of the inner store
	busy    sync.WaitGroup        // goroutines that borrow or give back
	closing atomic.Bool           // Shutdown was called
	failed  atomic.Pointer[error] // of the first refund that failed since
	shards  [shards]shard
}

const (
	maxTokens = 1_000_000
	minTTL    = 10 * time.Millisecond
	maxTTL    = 10 * time.Second
)

// New returns a Store that decides most takes on busy keys without I/O. A process takes up to n tokens of a
// key ahead by one statement, and spends them within ttl. Keys that the process sees fewer than four times in
// ttl are decided by store as before.
//
// Each token is charged in store before it is spent, and may be spent up to ttl after that. So during any
// time t requests take at most Capacity + (t+ttl)·Refill/Interval tokens, however many processes there are.
// After a Reset or Block by another process, each process may spend at most n more.
//
// n is 2 to 1,000,000, ttl 10 ms to 10 s. The store must not be nil or on a transaction: see
// [limiter.Provisional]. The error matches [limiter.ErrInvalid]. New does no I/O and starts no goroutine.
func New(store limiter.Store, n int64, ttl time.Duration) (*Store, error) {
	if v := reflect.ValueOf(store); store == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("borrow: %w: the store is nil (%T); pass what postgres.New or sqlite.Open returned", limiter.ErrInvalid, store)
	}
	if p, ok := store.(limiter.Provisional); ok && p.Provisional() {
		return nil, fmt.Errorf("borrow: %w: the store's decisions may be rolled back; pass a store that is not on a transaction", limiter.ErrInvalid)
	}
	if n < 2 || n > maxTokens {
		return nil, fmt.Errorf("borrow: %w: n is %d tokens; it must be 2 to %d", limiter.ErrInvalid, n, maxTokens)
	}
	if ttl < minTTL || ttl > maxTTL {
		return nil, fmt.Errorf("borrow: %w: the ttl is %v; it must be %v to %v", limiter.ErrInvalid, ttl, minTTL, maxTTL)
	}
	s := &Store{inner: store, n: n, ttl: ttl, clocks: readClocks()}
	for i := range s.shards {
		s.shards[i].entries, s.shards[i].used = map[id]*entry{}, list.New()
	}
	return s, nil
}

// Do implements [limiter.Store].
func (s *Store) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	p, ok := op.Policy.(bucket)
	switch {
	case !ok || s.off.Load() && (op.Kind == limiter.OpTake || op.Kind == limiter.OpTakeUpTo):
	case op.Kind == limiter.OpTake && op.MaxWait == 0 && op.At == 0 && op.Cost >= 1:
		return s.take(ctx, &op, p)
	case op.Kind == limiter.OpTake || op.Kind == limiter.OpTakeUpTo:
		s.convert(ctx, &op, p)
	case op.Kind != limiter.OpLook:
		return s.change(ctx, &op)
	}
	return s.direct(ctx, &op)
}

// direct lets the inner store decide. Tokens may come back between its decision and its answer, so direct also
// asks before the call whether there are any.
func (s *Store) direct(ctx context.Context, op *limiter.Op) (limiter.State, error) {
	owed := s.owed(op)
	state, err := s.do(ctx, *op)
	s.doNotKeep(op, &state, owed)
	return state, err
}

// DoAll implements [limiter.AllStore]. It counts borrowed tokens as taken.
func (s *Store) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	all, ok := s.inner.(limiter.AllStore)
	if !ok {
		return nil, fmt.Errorf("borrow: %w: the inner store is a %T, which has no DoAll for AllowAll: %w", limiter.ErrInvalid, s.inner, errors.ErrUnsupported)
	}
	owed := make([]bool, len(ops))
	for i := range ops {
		if p, ok := ops[i].Policy.(bucket); ok {
			s.convert(ctx, &ops[i], p)
			owed[i] = s.owed(&ops[i])
		}
	}
	states, err := all.DoAll(ctx, ops)
	if err == nil {
		s.answers.Add(1)
	}
	for i := range states {
		s.doNotKeep(&ops[i], &states[i], owed[i])
	}
	return states, err
}

// owed reports whether tokens of a key are held or on their way.
func (s *Store) owed(op *limiter.Op) bool {
	sh := s.shardOf(op)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries[id{op.Name, op.Key}]
	return e != nil && (e.tokens > 0 || e.running || !isClosed(e.back))
}

// doNotKeep sets the Wait of a refused take that has none if tokens of its key are or were owed, because these
// may let later takes pass. A deny cache keeps no state with a Wait.
func (s *Store) doNotKeep(op *limiter.Op, st *limiter.State, owed bool) {
	p, ok := op.Policy.(bucket)
	if !ok || st.Took || st.Wait != 0 || op.Kind != limiter.OpTake && op.Kind != limiter.OpTakeUpTo {
		return
	}
	if owed || s.owed(op) {
		cost := op.Cost
		if op.Kind == limiter.OpTakeUpTo {
			cost = 1
		}
		deficit := max(0, st.Row.FullAt-st.Now) + (cost-p.Capacity)*int64(p.Step())
		st.Wait = max(0, deficit-int64(op.MaxWait))
	}
}

// convert ends the holding of a key if the policy of op, which the store decides, is another one. It waits for
// what is given back.
func (s *Store) convert(ctx context.Context, op *limiter.Op, p bucket) {
	sh := s.shardOf(op)
	sh.mu.Lock()
	var back <-chan struct{} = closed
	if e := sh.entries[id{op.Name, op.Key}]; e != nil {
		if e.policy != p {
			s.end(sh, e, s.clocks(), false)
			e.policy = p
		}
		back = e.back
	}
	sh.mu.Unlock()
	await(ctx, back)
}

// change carries out an operation that ends the holding of its key. Until the store has answered, nobody
// borrows from the key.
func (s *Store) change(ctx context.Context, op *limiter.Op) (limiter.State, error) {
	sh := s.shardOf(op)
	sh.mu.Lock()
	now := s.clocks()
	e := s.entry(sh, op, now)
	s.end(sh, e, now, op.Kind == limiter.OpReset)
	e.barred++
	back := e.back
	sh.mu.Unlock()
	defer func() {
		sh.mu.Lock()
		e.barred--
		sh.mu.Unlock()
	}()
	await(ctx, back)
	return s.do(ctx, *op)
}

// shutdownWorkers is how many statements of Shutdown are in flight at a time.
const shutdownWorkers = 16

// Shutdown gives unspent tokens back to the store. Later takes go to the store. Call it before the process
// exits and before the store is closed. It waits for borrows in flight, and may be called again.
//
// If ctx ends before, the error matches [limiter.ErrCanceled]. Otherwise it is the first error of the store,
// and tokens are lost.
func (s *Store) Shutdown(ctx context.Context) error {
	s.off.Store(true)
	s.closing.Store(true)
	var workers sync.WaitGroup
	for first := range shutdownWorkers {
		workers.Go(func() {
			for i := first; i < shards; i += shutdownWorkers {
				s.endAll(ctx, &s.shards[i])
			}
		})
	}
	workers.Wait()
	done := make(chan struct{})
	if ctx.Err() == nil {
		go func() {
			s.busy.Wait()
			close(done)
		}()
	}
	await(ctx, done)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("borrow: %w: %w", limiter.ErrCanceled, err)
	}
	if err := s.failed.Swap(nil); err != nil {
		return fmt.Errorf("borrow: tokens are lost: %w", *err)
	}
	return nil
}

// endAll ends the holdings of a shard, one after another. The entries stay, because a Reset must find them and
// wait for what is given back.
func (s *Store) endAll(ctx context.Context, sh *shard) {
	sh.mu.Lock()
	entries := slices.Collect(maps.Values(sh.entries))
	sh.mu.Unlock()
	for _, e := range entries {
		if ctx.Err() != nil {
			return
		}
		sh.mu.Lock()
		s.end(sh, e, s.clocks(), false)
		back := e.back
		sh.mu.Unlock()
		await(ctx, back)
	}
}

// Stats counts what a [Store] has done since it was made. Borrowed, GivenBack and Lost count tokens.
type Stats struct {
	// Local is how many takes passed without a statement of their own.
	Local int64
	// Borrows is how many statements were sent to take tokens ahead, also those that failed.
	Borrows int64
	// Borrowed is how many tokens these statements took, those of their own takes included.
	Borrowed int64
	// GivenBack is how many of the tokens came back: by a statement, or because the bucket had refilled.
	GivenBack int64
	// Lost is how many of the tokens were neither spent nor given back, as far as the Store knows.
	Lost int64
	// Holdings is how many keys have tokens now.
	Holdings int
}

// Stats returns what the Store has done since it was made. It does no I/O and is safe for concurrent use.
func (s *Store) Stats() Stats {
	var sum Stats
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sum.Local += sh.stats.Local
		sum.Borrows += sh.stats.Borrows
		sum.Borrowed += sh.stats.Borrowed
		sum.GivenBack += sh.stats.GivenBack
		sum.Lost += sh.stats.Lost
		for _, e := range sh.entries {
			if e.tokens > 0 {
				sum.Holdings++
			}
		}
		sh.mu.Unlock()
	}
	return sum
}

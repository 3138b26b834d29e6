package borrow

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
)

// waiter is a take that waits for a borrow.
type waiter struct {
	ctx     context.Context
	op      limiter.Op
	answers uint64 // of its key when it arrived
	shares  bool   // it waited when the borrow in flight was sent, so that this may refuse it
	left    bool   // its caller has left

	done  chan struct{}
	store bool // the store must decide it
	state limiter.State
	err   error
}

func (w *waiter) finish(s limiter.State, err error) {
	w.state, w.err = s, err
	close(w.done)
}

// send lets the store decide the take.
func (w *waiter) send() {
	w.store = true
	close(w.done)
}

// sendAll lets the store decide all takes that wait.
func (e *entry) sendAll() {
	for _, w := range e.waiting {
		w.send()
	}
	e.waiting = nil
}

// take decides a take from memory, by a borrow, or by the store.
func (s *Store) take(ctx context.Context, op *limiter.Op, p bucket) (limiter.State, error) {
	if err := ctx.Err(); err != nil {
		return limiter.State{}, fmt.Errorf("borrow: %w: %w", limiter.ErrCanceled, err)
	}
	sh := s.shardOf(op)
	sh.mu.Lock()
	now := s.clocks() // under the lock: a holding may have waited for it
	e, removed := sh.entry(op)
	s.giveUp(sh, removed, now)
	var back owed
	if e.policy != p {
		back = sh.end(e, now, false)
		e.policy = p
	}
	e.count(op.Cost, now.mono, s.ttl)
	if e.tokens >= op.Cost && e.fresh(now, s.ttl) {
		state := e.spend(op.Cost, now)
		sh.stats.Local++
		sh.mu.Unlock()
		return state, nil
	}
	if unused := e.tokens > 0 && !e.fresh(now, s.ttl); unused || op.Cost > s.n {
		if unused {
			e.halve()
		}
		back = back.and(sh.release(e, &e.holding, now, false))
	}
	if s.decides(e, op.Cost, now) {
		done := s.giveBackNow(back, op.Timeout)
		sh.mu.Unlock()
		await(ctx, done)
		return s.inner.Do(ctx, *op)
	}
	w := &waiter{ctx: ctx, op: *op, answers: e.answers, done: make(chan struct{})}
	e.waiting = append(e.waiting, w)
	if !e.running {
		e.running = true
		s.busy.Go(func() { s.borrow(sh, e, back, w.op.Timeout) })
	}
	sh.mu.Unlock()
	return s.wait(sh, e, w)
}

// decides reports whether the inner store decides a take that the holding does not cover.
func (s *Store) decides(e *entry, cost int64, now instant) bool {
	switch {
	case s.off.Load() || e.barred > 0 || e.over || cost > s.n:
		return true
	case e.running:
		return false
	}
	return s.tooLarge(e, cost, now)
}

// tooLarge reports whether a chunk is not larger than a take, so that nothing would be taken ahead.
func (s *Store) tooLarge(e *entry, cost int64, now instant) bool {
	chunk := e.next(e.policy, s.n, now.mono, s.ttl)
	if e.tokens > 0 || cost < chunk {
		return false
	}
	e.chunk = chunk
	return true
}

// wait waits for the outcome of a take. If its caller leaves, nothing is charged to it.
func (s *Store) wait(sh *shard, e *entry, w *waiter) (limiter.State, error) {
	var limit <-chan time.Time
	if w.op.Timeout > 0 {
		timer := time.NewTimer(w.op.Timeout)
		defer timer.Stop()
		limit = timer.C
	}
	for {
		select {
		case <-w.done:
			if w.store {
				return s.inner.Do(w.ctx, w.op)
			}
			return w.state, w.err
		case <-w.ctx.Done():
			if sh.leave(e, w) {
				return limiter.State{}, fmt.Errorf("borrow: %w: %w", limiter.ErrCanceled, w.ctx.Err())
			}
		case <-limit:
			limit = nil
			sh.mu.Lock()
			owns, answered := e.owner == w, e.answers != w.answers // the store keeps the time of the owner's statement
			sh.mu.Unlock()
			if owns || !sh.leave(e, w) {
				continue
			}
			if answered {
				return limiter.State{}, fmt.Errorf("borrow: %w: %w: too many takes wait in this process", limiter.ErrNotApplied, limiter.ErrKeyBusy)
			}
			return limiter.State{}, fmt.Errorf("borrow: %w: the store did not answer takes of this key within %v", limiter.ErrNotApplied, w.op.Timeout)
		}
	}
}

// leave removes a take, unless it was decided. What its borrow brings goes to the holding.
func (sh *shard) leave(e *entry, w *waiter) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	select {
	case <-w.done:
		return false
	default:
	}
	w.left = true
	e.waiting = slices.DeleteFunc(e.waiting, func(other *waiter) bool { return other == w })
	return true
}

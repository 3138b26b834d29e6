package borrow

import (
	"context"
	"fmt"
	"time"

	"github.com/sqlimit/limiter"
)

// waiter is a take that waits for a borrow.
type waiter struct {
	ctx     context.Context
	op      limiter.Op
	answers uint64 // of the inner store when it arrived
	sent    bool   // a borrow was sent that decides it
	left    bool   // its caller has left

	done  chan struct{}
	store bool            // the store must decide it
	back  <-chan struct{} // when this is closed
	state limiter.State
	err   error
}

func (w *waiter) finish(s limiter.State, err error) {
	w.state, w.err = s, err
	close(w.done)
}

// send lets the store decide the take.
func (w *waiter) send(e *entry) {
	w.store, w.back = true, e.back
	close(w.done)
}

// sendAll lets the store decide all takes that wait.
func (e *entry) sendAll() {
	for _, w := range e.waiting {
		w.send(e)
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
	e := s.entry(sh, op, now)
	if e.policy != p {
		s.end(sh, e, now, false)
		e.policy = p
	}
	e.count(op.Cost, now.mono, s.ttl)
	if e.tokens >= op.Cost && e.fresh(now, s.ttl) {
		state := e.spend(op.Cost, now)
		sh.stats.Local++
		sh.mu.Unlock()
		return state, nil
	}
	if !s.expire(sh, e, &e.holding, now) && op.Cost > s.n {
		s.giveBackNow(e, sh.release(e, &e.holding, now, false))
	}
	if s.decides(e, op.Cost, now) {
		back := e.back
		sh.mu.Unlock()
		await(ctx, back)
		return s.direct(ctx, op)
	}
	w := &waiter{ctx: ctx, op: *op, answers: s.answers.Load(), done: make(chan struct{})}
	e.waiting = append(e.waiting, w)
	if !e.running {
		e.running = true
		s.busy.Go(func() { s.borrow(sh, e) })
	}
	sh.mu.Unlock()
	return s.wait(sh, w)
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
func (s *Store) wait(sh *shard, w *waiter) (limiter.State, error) {
	var limit <-chan time.Time
	if w.op.Timeout > 0 {
		ticker := time.NewTicker(w.op.Timeout)
		defer ticker.Stop()
		limit = ticker.C
	}
	for again := false; ; {
		select {
		case <-w.done:
			if w.store {
				await(w.ctx, w.back)
				return s.direct(w.ctx, &w.op)
			}
			return w.state, w.err
		case <-w.ctx.Done():
			if sh.leave(w) {
				return limiter.State{}, fmt.Errorf("borrow: %w: %w", limiter.ErrCanceled, w.ctx.Err())
			}
		case <-limit:
			sh.mu.Lock()
			sent, answered := w.sent, s.answers.Load() != w.answers
			sh.mu.Unlock()
			// The store keeps the time of a statement, but another take of it may have more.
			if sent && !again || !sh.leave(w) {
				again = true
				continue
			}
			if answered {
				return limiter.State{}, fmt.Errorf("borrow: %w: %w: too many takes wait in this process", limiter.ErrNotApplied, limiter.ErrKeyBusy)
			}
			return limiter.State{}, fmt.Errorf("borrow: %w: the store did not answer within %v", limiter.ErrNotApplied, w.op.Timeout)
		}
	}
}

// leave abandons a take, unless it was decided. What was borrowed for it goes to the holding.
func (sh *shard) leave(w *waiter) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	select {
	case <-w.done:
		return false
	default:
	}
	w.left = true
	return true
}

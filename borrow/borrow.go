package borrow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlimit/limiter"
)

// do calls the inner store in a goroutine of this package, where a panic would end the process.
func (s *Store) do(ctx context.Context, op limiter.Op) (state limiter.State, err error) {
	defer func() {
		if p := recover(); p != nil {
			state, err = limiter.State{}, fmt.Errorf("borrow: %w: panic: %v", limiter.ErrOutcomeUnknown, p)
		}
	}()
	return s.inner.Do(ctx, op)
}

// borrowing is a statement that takes tokens ahead.
type borrowing struct {
	owner *waiter
	op    limiter.Op
	aside holding // what its own take needs of the holding
	sent  instant
}

// borrow takes tokens ahead until no take of the key waits. First it gives back what is owed.
func (s *Store) borrow(sh *shard, e *entry, back owed, timeout time.Duration) {
	_ = s.giveBack(context.Background(), back, timeout)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for b := s.begin(e); b != nil; b = s.begin(e) {
		sh.stats.Borrows++
		sh.mu.Unlock()
		state, err := s.do(context.WithoutCancel(b.owner.ctx), b.op)
		sh.mu.Lock()
		if back := s.complete(sh, e, b, state, err); back.tokens > 0 {
			sh.mu.Unlock()
			_ = s.giveBack(context.Background(), back, b.op.Timeout)
			sh.mu.Lock()
		}
	}
	e.running, e.over, e.reset = false, false, false
}

// begin returns the next statement for the takes that wait, or nil if there is none to send.
func (s *Store) begin(e *entry) *borrowing {
	if e.over || s.off.Load() {
		e.sendAll()
		return nil
	}
	now := s.clocks()
	for len(e.waiting) > 0 && s.tooLarge(e, e.waiting[0].op.Cost, now) {
		e.waiting[0].send()
		e.waiting = e.waiting[1:]
	}
	if len(e.waiting) == 0 {
		return nil
	}
	for _, w := range e.waiting {
		w.shares = true
	}
	b := &borrowing{owner: e.waiting[0], op: e.waiting[0].op, aside: e.holding, sent: now}
	e.owner, e.waiting = b.owner, e.waiting[1:]
	e.chunk = e.next(e.policy, s.n, now.mono, s.ttl)
	b.op.Kind, b.op.Cost = limiter.OpTakeUpTo, max(e.chunk, b.op.Cost)-e.tokens
	e.tokens = 0
	return b
}

// complete decides the takes that a statement decides. The other tokens go to the holding, or complete
// returns what must be given back of them.
func (s *Store) complete(sh *shard, e *entry, b *borrowing, state limiter.State, err error) (back owed) {
	now := s.clocks()
	own, cost, h := b.owner, b.owner.op.Cost, b.aside
	e.owner = nil
	if h.tokens > 0 && !h.fresh(now, s.ttl) { // not anymore
		back = sh.release(e, &h, now, e.reset)
		e.halve()
	}
	if err == nil {
		e.answers++
		sh.stats.Borrowed += state.Taken
		h.add(state, b.sent, now)
	}
	over := e.over || s.off.Load()
	short := err == nil && state.Taken < b.op.Cost // the bucket is empty
	switch {
	case own.left:
	case errors.Is(err, errors.ErrUnsupported):
		s.off.Store(true)
		own.send()
	case err != nil:
		own.finish(limiter.State{}, err)
	case h.tokens >= cost:
		own.finish(h.spend(cost, now), nil)
		h.charged, h.debt = b.sent, debt(&state) // it spent the older ones
	case short:
		own.finish(h.found(), nil)
	case over:
		own.send()
	default:
		e.waiting = append([]*waiter{own}, e.waiting...)
	}
	if unused := h.tokens > 0 && !h.fresh(now, s.ttl); unused || over {
		if unused {
			e.halve()
		}
		back = back.and(sh.release(e, &h, now, e.reset))
	}
	if over {
		e.sendAll()
		return back
	}
	waiting := e.waiting[:0]
	for _, w := range e.waiting {
		switch {
		case h.tokens >= w.op.Cost:
			w.finish(h.spend(w.op.Cost, now), nil)
			sh.stats.Local++
		case w.shares && short:
			w.finish(h.found(), nil)
		default:
			waiting = append(waiting, w)
		}
	}
	clear(e.waiting[len(waiting):])
	e.waiting, e.holding = waiting, h
	return back
}
